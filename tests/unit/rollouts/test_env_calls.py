import asyncio
import contextlib
import threading
import time

import pytest

import pettingllms.rollouts.env_calls as guard_module
from pettingllms.rollouts.env_calls import CallFailed, EnvCaller, _Call
from pettingllms.runtime.call_clock import pause_call_clock


def call(function, *args, seconds: float = 0.2, blocking: bool = False):
    async def run():
        with EnvCaller(seconds, blocking) as guard:
            return await guard.call("it", function, *args)

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


def test_a_loop_that_swallows_the_first_end_is_ended_by_the_next(monkeypatch) -> None:
    monkeypatch.setattr(guard_module, "RETRY_SECONDS", 0.1)
    swallowed = []

    def stubborn() -> None:
        while True:
            try:
                while True:
                    sum(range(100))
            except BaseException as error:
                swallowed.append(error)
                if len(swallowed) == 2:
                    raise

    with pytest.raises(CallFailed, match="did not return"):
        call(stubborn)
    assert len(swallowed) == 2


def test_a_blocked_thread_is_left_behind() -> None:
    start = time.monotonic()
    with pytest.raises(CallFailed, match="did not return"):
        call(time.sleep, 5, blocking=True)
    assert time.monotonic() - start < 2


def test_blocking_calls_do_not_hold_up_the_loop() -> None:
    async def run() -> float:
        with EnvCaller(5, blocking=True) as guard:
            start = time.monotonic()
            await asyncio.gather(*(guard.call("sleep", time.sleep, 0.2) for _ in range(20)))
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
        with EnvCaller(0.02) as guard:
            for at in range(60):
                try:
                    outcomes.append(await guard.call("spin", spin, 0.015 + 0.0003 * at))
                except CallFailed:
                    outcomes.append("ended")
                spin(0.002)
        return outcomes

    outcomes = asyncio.run(run())
    assert {"done", "ended"} >= set(outcomes)
    assert len(outcomes) == 60


def test_the_watchdog_ends_with_the_guard() -> None:
    before = set(threading.enumerate())
    with EnvCaller(1):
        (watchdog,) = set(threading.enumerate()) - before
        assert watchdog.name == "env-watchdog"
    assert not watchdog.is_alive()


def test_an_end_that_has_not_landed_is_taken_back() -> None:
    """A thread that sits inside a C call cannot be hit yet; its call is over before it can."""
    gate, outcome = threading.Lock(), []
    gate.acquire()

    def wait() -> None:
        try:
            gate.acquire()
            outcome.append("untouched")
        except BaseException as error:  # noqa: BLE001 - what is looked for
            outcome.append(repr(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    guard = EnvCaller(60)
    guard._calls[thread.ident] = _Call(deadline=0.0)
    guard._end_calls(before=float("inf"))
    guard._finish(thread.ident)
    gate.release()
    thread.join()
    assert outcome == ["untouched"]


def test_after_one_overrun_calls_no_longer_hold_up_the_loop() -> None:
    under_way: set[int] = set()
    at_once: list[int] = []

    def endless() -> None:
        under_way.add(threading.get_ident())
        at_once.append(len(under_way))
        try:
            while True:
                pass
        finally:
            under_way.discard(threading.get_ident())

    async def run() -> None:
        with EnvCaller(0.5) as guard:
            with pytest.raises(CallFailed):
                await guard.call("it", endless)
            await asyncio.gather(
                *(guard.call("it", endless) for _ in range(4)), return_exceptions=True
            )

    asyncio.run(run())
    assert at_once[0] == 1
    assert max(at_once) > 1, "one after the other"


def test_leaving_the_guard_ends_what_is_still_running() -> None:
    beats = 0

    def endless() -> None:
        nonlocal beats
        while True:
            beats += 1

    async def run() -> None:
        with EnvCaller(60, blocking=True) as guard:
            task = asyncio.create_task(guard.call("it", endless))
            await asyncio.sleep(0.1)
            task.cancel()

    asyncio.run(run())
    time.sleep(0.1)
    before = beats
    time.sleep(0.1)
    assert beats == before > 0


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("blocking", [False, True])
def test_an_environment_cannot_stop_the_program(error, blocking) -> None:
    def leave() -> None:
        raise error

    with pytest.raises(CallFailed, match=error.__name__):
        call(leave, blocking=blocking)


def test_an_exception_that_cannot_say_what_it_is() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError

    def broken() -> None:
        raise Mute

    with pytest.raises(CallFailed, match="Mute: no message"):
        call(broken)


@pytest.mark.parametrize("blocking", [False, True])
def test_time_that_has_another_limit_does_not_count(blocking: bool) -> None:
    def waits() -> str:
        for _ in range(3):
            with pause_call_clock(), pause_call_clock():
                time.sleep(0.3)
        return "done"

    assert call(waits, seconds=0.2, blocking=blocking) == "done"


@pytest.mark.parametrize("blocking", [False, True])
def test_the_clock_goes_on_after_it_stood_still(blocking: bool) -> None:
    def hangs() -> None:
        with pause_call_clock():
            time.sleep(0.3)
        while True:
            time.sleep(0.01)

    with pytest.raises(CallFailed, match="did not return within 0.2 s"):
        call(hangs, seconds=0.2, blocking=blocking)


def test_a_clock_does_not_stand_still_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pettingllms.runtime.call_clock.MAX_PAUSED", 0.3)

    def stuck() -> None:
        with pause_call_clock():
            while True:
                time.sleep(0.01)

    with pytest.raises(CallFailed, match="did not return"):
        call(stuck, seconds=0.2, blocking=True)
