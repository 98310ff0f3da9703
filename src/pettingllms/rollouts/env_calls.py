"""Calls into an environment: what raises or hangs fails its own play and nothing else.

Plain environments are called on the event loop itself, which is what makes thousands of plays in
one process cheap. A call that overruns is ended from a watchdog thread by an exception raised
inside it, so an endless loop stops burning the core; from then on all calls are made on threads, so
that the next one does not hold up the loop. Environments that wait for something outside
(`blocking`) are called on threads from the start. A thread that cannot be ended, because it is
stuck inside a C call, is left behind. Time in the sandbox and in the grader, which have limits of
their own, does not count (`call_clock`).
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from pettingllms.errors import describe
from pettingllms.runtime.call_clock import CallClock, current
from pettingllms.types import Failed

ResultT = TypeVar("ResultT")
MAX_ON_THREADS = 64
"""Calls under way on threads at once, not counting those that were left behind."""
AGAIN_SECONDS = 2.0
"""Before a call that went on is ended again: long, so that no second end meets the first."""


class CallFailed(Exception):  # noqa: N818 - a recorded event of a play, not an error of the program
    """A call into an environment that gave nothing; carries the failure to record."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _Overtime(BaseException):
    """Raised inside a call that overran; not an Exception, so that no environment swallows it."""


class _Call:
    __slots__ = ("clock", "deadline", "ended")

    def __init__(self, deadline: float, clock: CallClock | None = None) -> None:
        self.deadline = deadline
        self.ended = False
        self.clock = clock or CallClock()


class Guard:
    """Runs the calls of one worker with a deadline each. Use as a context manager."""

    def __init__(self, seconds: float, blocking: bool = False) -> None:
        self._seconds = seconds
        self._on_threads = blocking
        self._calls: dict[int, _Call] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._free = asyncio.Semaphore(MAX_ON_THREADS)
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="env-watchdog")

    def __enter__(self) -> "Guard":
        self._watchdog.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        self._watchdog.join()
        self._end_calls(before=float("inf"))

    async def call(self, what: str, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """The function's result; CallFailed, naming `what` was called, if there is none."""
        if not self._on_threads:
            return self._call_here(what, function, *args)
        async with self._free:
            return await self._call_on_thread(what, function, *args)

    def _call_here(
        self,
        what: str,
        function: Callable[..., ResultT],
        *args: Any,
        clock: CallClock | None = None,
    ) -> ResultT:
        thread = threading.get_ident()
        try:
            try:
                call = self._calls[thread] = _Call(time.monotonic() + self._seconds, clock)
                current.set(call.clock)
                return function(*args)
            finally:
                self._finish(thread)
        except _Overtime:
            while thread in self._calls:  # the end may have landed before `_finish` had its effect
                with suppress(_Overtime):
                    self._finish(thread)
            self._on_threads = True
            raise CallFailed(self._overran(what)) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = f"{what} raised {describe(error)}"
            raise CallFailed(Failed(reason, "environment")) from error

    async def _call_on_thread(
        self, what: str, function: Callable[..., ResultT], *args: Any
    ) -> ResultT:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[ResultT] = loop.create_future()
        clock = CallClock()

        def settle(result: ResultT | None, error: CallFailed | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]
            else:
                done.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = self._call_here(what, function, *args, clock=clock)
            except CallFailed as failed:
                error = failed
            with suppress(RuntimeError):  # the loop is closed: the run was left, nobody waits
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, daemon=True, name="env-call").start()
        end = time.monotonic() + self._seconds * 1.5
        try:
            while not done.done() and (left := end + clock.stopped() - time.monotonic()) > 0:
                await asyncio.wait([done], timeout=left)
            if done.done():
                return done.result()
        finally:
            done.cancel()
        raise CallFailed(self._overran(what))

    def _finish(self, thread: int) -> None:
        """Take the call off the watch, and take back an exception that has not landed yet."""
        with self._lock:
            call = self._calls.pop(thread, None)
            if call is not None and call.ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / 4, 0.25)):
            self._end_calls(before=time.monotonic())

    def _end_calls(self, before: float) -> None:
        """Raise inside every call whose deadline has passed; again later, if it goes on."""
        with self._lock:
            for thread, call in list(self._calls.items()):  # others add to it meanwhile
                if call.deadline + call.clock.stopped() < before:
                    again = time.monotonic() + AGAIN_SECONDS - call.clock.stopped()
                    call.ended, call.deadline = True, again
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(_Overtime)
                    )

    def _overran(self, what: str) -> Failed:
        return Failed(
            f"{what} did not return within {self._seconds:g} s (rollout.env_timeout); the call "
            "was ended",
            "environment",
        )
