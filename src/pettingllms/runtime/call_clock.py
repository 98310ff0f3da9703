"""The clock of a call into an environment, paused while a sandbox or grader works for the call.

Sandboxes and graders have timeouts and queues. If their time counted, a reply could avoid its
grade: a program that sleeps until its timeout twice would exceed the timeout of the call, and a
call that times out is a failure of the environment.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_PAUSED = 600.0
"""Seconds that a clock may be paused per call; all sandbox and grader timeouts are shorter."""


class CallClock:
    """Measures how long a call has waited for services with separate timeouts."""

    def __init__(self) -> None:
        self._paused = 0.0
        self._since: float | None = None

    def paused_seconds(self) -> float:
        """Seconds that the clock has been paused. Thread-safe."""
        since = self._since
        now = 0.0 if since is None else time.monotonic() - since
        return min(MAX_PAUSED, self._paused + now)

    def pause(self) -> bool:
        """Pause the clock; False if it is paused already."""
        if self._since is not None:
            return False
        self._since = time.monotonic()
        return True

    def resume(self) -> None:
        """Resume the clock."""
        if self._since is not None:
            self._paused += time.monotonic() - self._since
            self._since = None


current: ContextVar[CallClock | None] = ContextVar("call_clock", default=None)
"""The clock of the current call on this thread."""


@contextmanager
def pause_call_clock() -> Iterator[None]:
    """Pause the clock of the current call while a service with a separate timeout works."""
    clock = current.get()
    if clock is None or not clock.pause():
        yield
        return
    try:
        yield
    finally:
        clock.resume()
