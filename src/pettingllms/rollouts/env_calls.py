"""Calls into an environment: a call that raises or hangs fails only its own episode.

Environments are called on the event loop itself, which keeps thousands of concurrent episodes
cheap. A watchdog thread ends a call that exceeds its timeout by raising an exception inside it.
From then on all calls run on threads, so that the next slow call does not block the loop.
Environments that wait for external services (`blocking`) run on threads from the start. A thread
that is stuck inside a C call cannot be ended and is abandoned. Time in the sandbox and in the
grader, which have timeouts, does not count (`call_clock`).
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
"""Concurrent calls on threads, without abandoned ones."""
RETRY_SECONDS = 2.0
"""Delay before a call that still runs is ended again; long, so that attempts never overlap."""


class CallFailed(Exception):  # noqa: N818 - a recorded event of an episode, not an error
    """A call into an environment that gave no result; carries the failure to record."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _CallTimeout(BaseException):
    """Raised inside a call that timed out; not an Exception, so that no environment catches it."""


class _Call:
    __slots__ = ("clock", "deadline", "ended")

    def __init__(self, deadline: float, clock: CallClock | None = None) -> None:
        self.deadline = deadline
        self.ended = False
        self.clock = clock or CallClock()


class EnvCaller:
    """Runs the calls of one worker, each with a timeout. Use as a context manager."""

    def __init__(
        self, seconds: float, blocking: bool = False, room: asyncio.Semaphore | None = None
    ) -> None:
        self.room = room
        """Room for the episodes of workers that share it; None: each has its own bound."""
        self._seconds = seconds
        self._on_threads = blocking
        self._calls: dict[int, _Call] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._free = asyncio.Semaphore(MAX_ON_THREADS)
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="env-watchdog")

    def __enter__(self) -> "EnvCaller":
        self._watchdog.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        self._watchdog.join()
        self._end_calls(before=float("inf"))

    async def call(self, what: str, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """Call a function and return its result; raise CallFailed, naming `what`, on failure."""
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
        except _CallTimeout:
            while (
                thread in self._calls
            ):  # the exception may have arrived before `_finish` took effect
                with suppress(_CallTimeout):
                    self._finish(thread)
            self._on_threads = True
            raise CallFailed(self._timed_out(what)) from None
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

        def write_outcome(result: ResultT | None, error: CallFailed | None) -> None:
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
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
                loop.call_soon_threadsafe(write_outcome, result, error)

        threading.Thread(target=run, daemon=True, name="env-call").start()
        end = time.monotonic() + self._seconds * 1.5
        try:
            while not done.done() and (left := end + clock.paused_seconds() - time.monotonic()) > 0:
                await asyncio.wait([done], timeout=left)
            if done.done():
                return done.result()
        finally:
            done.cancel()
        raise CallFailed(self._timed_out(what))

    def _finish(self, thread: int) -> None:
        """Unregister the call, and cancel an exception that has not been delivered yet."""
        with self._lock:
            call = self._calls.pop(thread, None)
            if call is not None and call.ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / 4, 0.25)):
            self._end_calls(before=time.monotonic())

    def _end_calls(self, before: float) -> None:
        """Raise inside every call whose deadline has passed, and again later if it still runs."""
        with self._lock:
            for thread, call in list(self._calls.items()):  # other threads add calls meanwhile
                if call.deadline + call.clock.paused_seconds() < before:
                    again = time.monotonic() + RETRY_SECONDS - call.clock.paused_seconds()
                    call.ended, call.deadline = True, again
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(_CallTimeout)
                    )

    def _timed_out(self, what: str) -> Failed:
        return Failed(
            f"{what} did not return within {self._seconds:g} s (rollout.env_timeout); the call "
            "was ended",
            "environment",
        )
