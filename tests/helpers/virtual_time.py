"""An event loop whose time jumps to the next timer, so that deadlines do not depend on the machine.

For tests that wait for timers alone: what a thread or a socket does takes no time here.
"""

import asyncio
from collections.abc import Iterator

import pytest


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never sleeps: once nothing is ready, it is as late as the next timer says."""

    latest = 0.0
    """The time of the loop that ran last."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready:
            timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]
            self._now = max(self._now, min(timers, default=self._now))
            VirtualLoop.latest = self._now
        super()._run_once()


class VirtualPolicy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> VirtualLoop:
        return VirtualLoop()


@pytest.fixture
def virtual_time() -> Iterator[type[VirtualLoop]]:
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(VirtualPolicy())
    try:
        yield VirtualLoop
    finally:
        asyncio.set_event_loop_policy(before)
