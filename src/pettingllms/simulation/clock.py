"""The simulated clock: processes that wait for a time or for an event, in a fixed order.

A process is a generator. It yields the number of seconds to wait, or an event to wait for. What
happens at the same time happens in the order in which it was scheduled, so a simulation with the
same seed repeats exactly.
"""

import heapq
from collections.abc import Callable, Generator

from pettingllms.errors import PettingError


class SimulationError(PettingError):
    """A simulation that cannot continue."""


class Event:
    """Something that happens once."""

    __slots__ = ("_waiting", "happened")

    def __init__(self) -> None:
        self.happened = False
        self._waiting: list[Callable[[], None]] = []

    def then(self, call: Callable[[], None]) -> None:
        """Call a function when the event happens; now, if it has."""
        if self.happened:
            call()
        else:
            self._waiting.append(call)

    def happen(self) -> None:
        """The event happens: everything that waits for it continues."""
        self.happened = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


class Countdown(Event):
    """An event that happens after a number of others."""

    __slots__ = ("_left",)

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count
        if not count:
            self.happen()

    def count(self) -> None:
        """One of them has happened."""
        self._left -= 1
        if not self._left:
            self.happen()


Process = Generator[float | Event, None, None]


class Clock:
    """Simulated time in seconds."""

    __slots__ = ("_calls", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function after a delay."""
        self._number += 1
        heapq.heappush(self._calls, (self.now + seconds, self._number, call))

    def start(self, process: Process) -> Event:
        """Run a process from now on; the event is its end."""
        end = Event()

        def resume() -> None:
            try:
                wait = process.send(None)
            except StopIteration:
                end.happen()
                return
            if type(wait) is float:
                self.after(wait, resume)
            elif isinstance(wait, Event):
                wait.then(resume)
            else:
                self.after(wait, resume)

        resume()
        return end

    def run_until(self, end: Event) -> None:
        """Let time pass until an event happens; SimulationError if it never does."""
        calls, pop = self._calls, heapq.heappop
        while not end.happened:
            if not calls:
                raise SimulationError(
                    f"nothing happens after {self.now:.1f} simulated seconds, and the run has not "
                    "ended: a deadlock, which is a bug; report the config and the seed"
                )
            self.now, _, call = pop(calls)
            call()
