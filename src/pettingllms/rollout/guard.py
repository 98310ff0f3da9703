"""Calls into an environment: what raises or hangs fails its own play and nothing else.

Plain environments are called on the event loop itself, which is what makes thousands of plays in
one process cheap. A call that overruns is ended from a watchdog thread by an exception raised
inside it, so an endless loop stops burning the core. Environments that wait for something outside
(`blocking`) are called on threads of their own, and a thread that cannot be ended is left behind.
"""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pettingllms.types import Failed

ResultT = TypeVar("ResultT")
MAX_BLOCKED = 64
"""Blocking calls under way at once."""


class CallFailed(Exception):  # noqa: N818 - a recorded event of a play, not an error of the program
    """A call into an environment that gave nothing; carries the failure to record."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _Overtime(BaseException):
    """Raised inside a call that overran; not an Exception, so that no environment swallows it."""


class _Call:
    __slots__ = ("deadline", "ended")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.ended = False


class Guard:
    """Runs the calls of one worker with a deadline each. Use as a context manager."""

    def __init__(self, seconds: float, blocking: bool = False) -> None:
        self._seconds = seconds
        self._blocking = blocking
        self._calls: dict[int, _Call] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._free = asyncio.Semaphore(MAX_BLOCKED)
        self._watchdog = threading.Thread(target=self._watch, daemon=True, name="env-watchdog")

    def __enter__(self) -> "Guard":
        self._watchdog.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed.set()
        self._watchdog.join()

    async def call(self, function: Callable[..., ResultT], *args: Any) -> ResultT:
        """The function's result; CallFailed if it raised or took too long."""
        if not self._blocking:
            return self._call_here(function, *args)
        async with self._free:
            return await self._call_on_thread(function, *args)

    def _call_here(self, function: Callable[..., ResultT], *args: Any) -> ResultT:
        thread = threading.get_ident()
        try:
            try:
                self._calls[thread] = _Call(time.monotonic() + self._seconds)
                return function(*args)
            finally:
                self._finish(thread)
        except _Overtime:
            self._finish(thread)
            raise CallFailed(self._overran(function)) from None
        except Exception as error:
            reason = f"{_name(function)} raised {type(error).__name__}: {error}"
            raise CallFailed(Failed(reason, "environment")) from error

    async def _call_on_thread(self, function: Callable[..., ResultT], *args: Any) -> ResultT:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[ResultT] = loop.create_future()

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
                result = self._call_here(function, *args)
            except CallFailed as failed:
                error = failed
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, daemon=True, name="env-call").start()
        try:
            return await asyncio.wait_for(done, self._seconds * 1.5)
        except TimeoutError:
            raise CallFailed(self._overran(function)) from None

    def _finish(self, thread: int) -> None:
        """Take the call off the watch, and take back an exception that has not landed yet."""
        with self._lock:
            call = self._calls.pop(thread, None)
            if call is not None and call.ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / 4, 0.25)):
            now = time.monotonic()
            with self._lock:
                for thread, call in list(self._calls.items()):
                    if now > call.deadline:
                        call.ended, call.deadline = True, now + self._seconds
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread), ctypes.py_object(_Overtime)
                        )

    def _overran(self, function: Callable[..., Any]) -> Failed:
        return Failed(
            f"{_name(function)} did not return within {self._seconds:g} s "
            "(rollout.env_seconds); the call was ended",
            "environment",
        )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
