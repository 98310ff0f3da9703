"""Engines that hang are replaced, and those that answer are left alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

import ray
from ray.exceptions import RayActorError

from pettingllms.cluster.engines import Engines
from pettingllms.cluster.heartbeat import until_silent
from pettingllms.cluster.reservation import local_places
from pettingllms.config import InferenceConfig
from pettingllms.errors import ClusterError, LearnerLostError
from pettingllms.inference.engines.base import EngineSpec

BOUND = 0.2


class Actor:
    """Answers to `ping` for a number of times; then it hangs, or is dead."""

    def __init__(self, num_answers: float = float("inf"), is_dead: bool = False) -> None:
        self.num_answers, self.is_dead = num_answers, is_dead
        self.num_asked = 0
        self.is_killed = asyncio.Event()
        self.start, self.ping, self.stop, self.sleep, self.wake = (
            Method(f) for f in (self._start, self._ping, self._stop, self._switch, self._switch)
        )

    async def _start(self) -> None: ...

    async def _stop(self) -> None: ...

    async def _switch(self) -> None:
        if self.is_killed.is_set():
            raise RayActorError

    async def _ping(self) -> None:
        self.num_asked += 1
        if self.num_asked > self.num_answers:
            if not self.is_dead:
                await self.is_killed.wait()
            raise RayActorError


class Method:
    def __init__(self, call: Any) -> None:
        self.remote = call


def test_silence_differs_from_death() -> None:
    hung = asyncio.run(until_silent(Actor(num_answers=3), BOUND))
    assert isinstance(hung, TimeoutError)
    assert "has not answered for 0.2 s (inference.engine_timeout)" in str(hung)
    assert isinstance(asyncio.run(until_silent(Actor(0, is_dead=True), BOUND)), RayActorError)


def engines_of(
    monkeypatch: pytest.MonkeyPatch, actors: list[Actor], max_restarts: int, sleeps: bool = False
) -> tuple[Engines, list[str]]:
    made, said = iter(actors), list[str]()
    monkeypatch.setattr(Engines, "_create", lambda self, spec, place: next(made))
    monkeypatch.setattr(ray, "kill", lambda actor: actor.is_killed.set())
    spec = EngineSpec(Path("tiny"), InferenceConfig(engine_timeout=BOUND), ("p",), sleeps=sleeps)
    return Engines([spec], local_places(1), max_restarts, said.append), said


def test_an_engine_that_hangs_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        hung, dead, sound = Actor(num_answers=2), Actor(num_answers=1, is_dead=True), Actor()
        engines, said = engines_of(monkeypatch, [hung, dead, sound], 3)
        await engines.start()
        async with asyncio.timeout(10):
            while sound.num_asked < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert engines.replicas[0].actor is sound
        assert engines.replicas[0].generation == 2
        await engines.stop()
        assert "an engine for tiny hangs: it has not answered for 0.2 s" in said[0]
        assert said[2] == "an engine for tiny died; restarting it"
        assert hung.is_killed.is_set()

    asyncio.run(run())


def test_one_that_hangs_past_its_restarts_is_killed_so_that_its_calls_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        hung = Actor(num_answers=0)
        engines, _ = engines_of(monkeypatch, [hung], 0)
        await engines.start()
        await asyncio.wait_for(hung.is_killed.wait(), 10)
        with pytest.raises(ClusterError, match=r"died 1 times, .*has not answered"):
            await engines._replaced(0, TimeoutError("it has not answered"))

    asyncio.run(run())


def test_an_engine_is_watched_again_after_its_learner_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run restarts the learner and goes on, so an engine may hang later."""

    async def run() -> None:
        dead, sound = Actor(num_answers=0, is_dead=True), Actor()
        waiting = [Actor() for _ in range(4)]
        engines, _ = engines_of(monkeypatch, [dead, *waiting, sound], 1)
        lost = [LearnerLostError("rank 0 died") for _ in waiting]  # none is a fault of the engine

        class NoLearner:
            async def send(self, policy: str, actors: Any) -> list[Any]:
                return [lost.pop() if lost else None]

        engines._published["p"] = NoLearner()  # type: ignore[assignment]
        await engines.start()
        async with asyncio.timeout(10):
            while sound.num_asked < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await engines.stop()

    asyncio.run(run())


def test_an_engine_that_dies_while_learners_use_its_memory_is_replaced_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        dead, sound = Actor(num_answers=0, is_dead=True), Actor()
        engines, said = engines_of(monkeypatch, [dead, sound], 1, sleeps=True)
        await engines.sleep()
        await engines.start()
        await asyncio.wait_for(dead.is_killed.wait(), 10)
        await engines.sleep()  # a step that is given up sleeps again: it must not wait
        await asyncio.sleep(2 * BOUND)
        assert (said, engines.replicas[0].actor) == ([], dead)
        await asyncio.wait_for(engines.wake(), 10)
        assert engines.replicas[0].actor is sound
        assert len(said) == 2
        await engines.stop()

    asyncio.run(run())
