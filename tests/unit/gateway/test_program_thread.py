"""Programs run with a time limit from their start, and cannot stop other programs."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pettingllms.gateway import programs as module
from pettingllms.gateway.programs import ProgramThread
from pettingllms.types import Failed


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def on_thread(work: Callable[[ProgramThread], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        thread = ProgramThread()
        thread.start()
        try:
            return await work(thread)
        finally:
            thread.stop()

    return asyncio.run(run())


def workflow(run: Callable[..., Any], seconds: float) -> Any:
    is_async = asyncio.iscoroutinefunction(run)
    return SimpleNamespace(config=SimpleNamespace(seconds=seconds), is_async=is_async, run=run)


def test_the_time_limit_excludes_the_wait_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ON_THREADS", 2)
    many = workflow(lambda task, agents: time.sleep(0.3) or "done", 1.0)

    async def work(thread: ProgramThread) -> list[Any]:
        return await asyncio.gather(*(thread.run(many, n, None) for n in range(12)))

    assert on_thread(work) == ["done"] * 12


def test_programs_that_never_end_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(module, "MAX_ON_THREADS", 2)
    stuck = workflow(lambda task, agents: release.wait(), 0.2)

    async def work(thread: ProgramThread) -> tuple[list[Any], str]:
        left = await asyncio.gather(*(thread.run(stuck, n, None) for n in range(4)))
        return left, await thread.call(20.0, lambda: "judged")

    left, judged = on_thread(work)
    assert judged == "judged"
    assert left == [Failed("the program did not end within 0.2 s (env.seconds)", "limit")] * 4


def test_called_functions_have_a_time_limit(release: threading.Event) -> None:
    with pytest.raises(TimeoutError, match=r"did not return within 0\.1 s \(env\.seconds\)"):
        on_thread(lambda thread: thread.call(0.1, release.wait))


def leave(task: Any, agents: Any) -> None:
    sys.exit("no luck")


async def leave_later(task: Any, agents: Any) -> None:
    await asyncio.sleep(0)
    sys.exit("no luck")


@pytest.mark.parametrize("run", [leave, leave_later])
def test_a_program_cannot_end_the_process(run: Any) -> None:
    async def fine(task: Any, agents: Any) -> str:
        return "fine"

    async def work(thread: ProgramThread) -> tuple[Any, Any]:
        left = await thread.run(workflow(run, 20.0), None, None)
        return left, await thread.run(workflow(fine, 20.0), None, None)

    left, after = on_thread(work)
    assert left.owner == "environment"
    assert "SystemExit: no luck" in left.reason
    assert after == "fine"
