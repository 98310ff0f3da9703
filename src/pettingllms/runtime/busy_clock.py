"""How long a process works, and how many of its slots are in use meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Use(NamedTuple):
    """Totals since a process started."""

    busy_seconds: float
    """Time in which it had work."""
    filled_seconds: float
    """Time, weighted by the share of its slots that were in use."""


class BusyClock:
    """Measures the work of one process, whose pieces may overlap."""

    def __init__(self, num_slots: int = 1, now: Callable[[], float] = time.monotonic) -> None:
        self._num_slots = num_slots
        self._now = now
        self._last = now()
        self._num_running = 0
        self._use = Use(0.0, 0.0)

    @contextmanager
    def busy(self, num_slots: int = 1) -> Iterator[None]:
        """Work on something that takes some slots. Beyond the number that there are, it waits."""
        self._add(num_slots)
        try:
            yield
        finally:
            self._add(-num_slots)

    def use(self) -> Use:
        """The totals so far, work in progress included."""
        self._add(0)
        return self._use

    def _add(self, num_slots: int) -> None:
        now = self._now()
        seconds, self._last = now - self._last, now
        busy, filled = self._use
        if self._num_running:
            busy += seconds
            filled += seconds * min(1.0, self._num_running / self._num_slots)
        self._use = Use(busy, filled)
        self._num_running += num_slots
