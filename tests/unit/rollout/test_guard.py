import asyncio
import contextlib
import threading
import time

import pytest

from pettingllms.rollout.guard import CallFailed, Guard


def call(function, *args, seconds: float = 0.2, blocking: bool = False):
    async def run():
        with Guard(seconds, blocking) as guard:
            return await guard.call(function, *args)

    return asyncio.run(run())


@pytest.mark.parametrize("blocking", [False, True])
def test_a_call_gives_its_result(blocking: bool) -> None:
    assert call(divmod, 7, 2, blocking=blocking) == (3, 1)


@pytest.mark.parametrize("blocking", [False, True])
def test_an_exception_becomes_a_failure_of_the_environment(blocking: bool) -> None:
    def broken() -> None:
        raise KeyError("board")

    with pytest.raises(CallFailed) as caught:
        call(broken, blocking=blocking)
    assert caught.value.failure.owner == "environment"
    assert "KeyError: 'board'" in caught.value.failure.reason


@pytest.mark.parametrize("blocking", [False, True])
def test_an_endless_loop_is_ended(blocking: bool) -> None:
    beats = 0

    def endless() -> None:
        nonlocal beats
        while True:
            beats += 1

    with pytest.raises(CallFailed, match="did not return within 0.2 s"):
        call(endless, blocking=blocking)
    time.sleep(0.05)
    before = beats
    time.sleep(0.1)
    assert beats == before, "the loop still burns a core"


def test_a_loop_that_swallows_exceptions_is_ended_too() -> None:
    def stubborn() -> None:
        while True:
            with contextlib.suppress(Exception):
                sum(range(100))

    with pytest.raises(CallFailed, match="did not return"):
        call(stubborn)


def test_a_blocked_thread_is_left_behind() -> None:
    start = time.monotonic()
    with pytest.raises(CallFailed, match="did not return"):
        call(time.sleep, 5, blocking=True)
    assert time.monotonic() - start < 2


def test_blocking_calls_do_not_hold_up_the_loop() -> None:
    async def run() -> float:
        with Guard(5, blocking=True) as guard:
            start = time.monotonic()
            await asyncio.gather(*(guard.call(time.sleep, 0.2) for _ in range(20)))
            return time.monotonic() - start

    assert asyncio.run(run()) < 2


def test_a_late_end_never_hits_the_code_after_the_call() -> None:
    """Calls that end around their deadline: the exception lands inside, or not at all."""

    def spin(seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "done"

    async def run() -> list[str]:
        outcomes = []
        with Guard(0.02) as guard:
            for at in range(60):
                try:
                    outcomes.append(await guard.call(spin, 0.015 + 0.0003 * at))
                except CallFailed:
                    outcomes.append("ended")
                spin(0.002)
        return outcomes

    outcomes = asyncio.run(run())
    assert {"done", "ended"} >= set(outcomes)
    assert len(outcomes) == 60


def test_the_watchdog_ends_with_the_guard() -> None:
    with Guard(1):
        assert any(thread.name == "env-watchdog" for thread in threading.enumerate())
    assert not any(thread.name == "env-watchdog" for thread in threading.enumerate())
