"""The clock of a call into an environment, which stops while something else works for the call.

A sandbox and a grader have limits of their own, and a queue before them. If that time counted, a
reply could void its own grade: a program that sleeps to its limit twice overruns the call, and a
call that overruns is a failure of the environment.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MAX_STOPPED = 600.0
"""Seconds that a clock may stand still in one call: whatever works for it has ended long before."""


class CallClock:
    """How long a call has been waiting for what has its own limits."""

    def __init__(self) -> None:
        self._stopped = 0.0
        self._since: float | None = None

    def stopped(self) -> float:
        """Seconds that the clock has stood still; may be asked by any thread."""
        since = self._since
        now = 0.0 if since is None else time.monotonic() - since
        return min(MAX_STOPPED, self._stopped + now)

    def stop(self) -> bool:
        """Stand still from now on; False if it does already."""
        if self._since is not None:
            return False
        self._since = time.monotonic()
        return True

    def go(self) -> None:
        """Count again."""
        if self._since is not None:
            self._stopped += time.monotonic() - self._since
            self._since = None


current: ContextVar[CallClock | None] = ContextVar("call_clock", default=None)
"""The clock of the call that is under way on this thread."""


@contextmanager
def uncounted() -> Iterator[None]:
    """Stop the clock of the call that is under way: what is done inside has limits of its own."""
    clock = current.get()
    if clock is None or not clock.stop():
        yield
        return
    try:
        yield
    finally:
        clock.go()
