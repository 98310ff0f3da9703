"""Colocated engines start and sleep before the learners that share their GPUs load."""

import asyncio

import pytest

from pettingllms.cluster.start_order import start_all


class Process:
    def __init__(self, name: str, log: list[str], notice: str = "") -> None:
        self._name, self._log, self._notice = name, log, notice

    async def start(self, *_: bool) -> str:
        return await self._note("start")

    async def sleep(self) -> None:
        await self._note("sleep")

    async def wake(self) -> None:
        await self._note("wake")

    async def _note(self, what: str) -> str:
        self._log.append(f"{what} {self._name}")
        await asyncio.sleep(0.01)
        self._log.append(f"{what} {self._name} done")
        return self._notice


def order(colocated: bool) -> tuple[list[str], list[str]]:
    log: list[str] = []
    engines = [Process(name, log) for name in ("e1", "e2")]
    learners = [Process("l1", log, "trees are off"), Process("l2", log)]
    return log, asyncio.run(start_all(engines, learners, True, colocated))


def test_colocated_processes_start_in_order() -> None:
    log, notices = order(colocated=True)
    assert notices == ["trees are off"]
    first = {word: log.index(word) for word in log}
    for engine in ("e1", "e2"):
        for other in ("e1", "e2"):
            assert first[f"start {engine} done"] < first[f"sleep {other}"]
        for learner in ("l1", "l2"):
            assert first[f"sleep {engine} done"] < first[f"start {learner}"]
            assert first[f"start {learner} done"] < first[f"wake {engine}"]


@pytest.mark.parametrize("name", ["e1", "l1"])
def test_processes_on_separate_gpus_start_together(name: str) -> None:
    log, notices = order(colocated=False)
    assert notices == ["trees are off"]
    assert log.index(f"start {name}") < log.index("start e2 done")
    assert not any(word.startswith(("sleep", "wake")) for word in log)
