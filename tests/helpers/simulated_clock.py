"""An event loop whose clock jumps to the next timer as soon as nothing else can run."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for a timer; it only counts how long it would have waited."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:  # no timer: another thread will wake the loop
            return super().select(None)
        if not (ready := super().select(0)):
            self.waited += max(0.0, timeout)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on a simulated clock, which starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.waited


def run_simulated(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run a coroutine; its result and the simulated seconds that it took."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        loop = runner.get_loop()
        return runner.run(work), loop.time()
