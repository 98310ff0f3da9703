"""Requests in flight: concurrency limits per server, and timeouts that exclude queueing.

Time in our own queue does not depend on the server, so it does not count: `service_timeout` starts
a clock, and queues pause that clock while a request waits (`pause_deadline`). `InFlight` is such a
queue, first in, first out. It also detects a stuck server: if a request times out and the server
has answered nothing since the request was sent, all waiting requests fail too. A stuck server thus
costs one timeout, not one per round of requests.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from pettingllms.errors import NoAnswerError


class ServiceClock:
    """A deadline that is paused while a request waits in a queue."""

    def __init__(
        self, timeout: asyncio.Timeout, seconds: float, outer: "ServiceClock | None" = None
    ) -> None:
        self.seconds = seconds
        self._timeout = timeout
        self._outer = outer
        self._num_waits = 0
        self._left = seconds
        self.is_closed = False

    def expired(self) -> bool:
        """Whether the deadline passed and ended the work."""
        return self._timeout.expired()

    def pause(self) -> None:
        """Pause until `resume` was called as often."""
        self._num_waits += 1
        when = self._timeout.when()
        if self._num_waits == 1 and self._can_change() and when is not None:
            self._left = max(0.0, when - asyncio.get_running_loop().time())
            self._timeout.reschedule(None)
        if self._outer is not None:
            self._outer.pause()

    def resume(self, restart: bool = False) -> None:
        """Resume with the remaining time, or with the full time."""
        self._num_waits -= 1
        self._left = self.seconds if restart else self._left
        if self._num_waits == 0 and self._can_change():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)
        if self._outer is not None:
            self._outer.resume()

    def _can_change(self) -> bool:
        return not (self.is_closed or self._timeout.expired())


_CLOCK: ContextVar[ServiceClock | None] = ContextVar("service_clock", default=None)


@asynccontextmanager
async def service_timeout(
    seconds: float, outer: ServiceClock | None = None
) -> AsyncIterator[ServiceClock]:
    """Raise TimeoutError inside the block after `seconds` of service.

    `outer` is the clock of enclosing work; it is paused whenever this clock is.
    """
    async with asyncio.timeout(seconds) as timeout:
        clock = ServiceClock(timeout, seconds, outer)
        before = _CLOCK.set(clock)
        try:
            yield clock
        finally:
            clock.is_closed = True
            _CLOCK.reset(before)


@contextmanager
def pause_deadline(restart: bool = False) -> Iterator[None]:
    """Pause the clock of the current request, if it has one. `restart` restores its full time, for
    requests that start over."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.pause()
    try:
        yield
    finally:
        clock.resume(restart)


def current_clock() -> ServiceClock | None:
    """The clock of the current request."""
    return _CLOCK.get()


def stalled(seconds: float) -> NoAnswerError:
    """The error of requests that waited for a stuck server."""
    return NoAnswerError(
        f"the server answered no request in the last {seconds:g} s; waiting requests were canceled"
    )


class InFlight:
    """Slots for the replies that one server samples concurrently.

    A request enters while fewer than `size` replies are in flight, whatever its number of replies.
    Only the last siblings of one request may wait inside the server, and no slot stays empty.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._num_replies = 0
        self._num_answered = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def resize(self, size: int) -> None:
        """Change the number of slots; replies in flight beyond it are finished."""
        self._size = size
        self._admit()

    @asynccontextmanager
    async def place(self, num_replies: int = 1, ahead: bool = False) -> AsyncIterator[None]:
        """Wait for slots, with the clock paused; they are released when the block ends. `ahead`:
        before all requests that wait now."""
        with pause_deadline():
            await self._enter(num_replies, ahead)
        answered_before, is_answered = self._num_answered, True  # errors count as answers
        try:
            yield
        except asyncio.CancelledError:
            clock, is_answered = current_clock(), False
            if clock and clock.expired() and self._num_answered == answered_before:
                self._give_up(clock.seconds)
            raise
        finally:
            self._num_answered += is_answered
            self._leave(num_replies)

    async def _enter(self, num_replies: int, ahead: bool) -> None:
        if not self._waiting and self._num_replies < self._size:
            self._num_replies += num_replies
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if ahead else self._waiting.append)((num_replies, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(num_replies)  # it had been admitted just before
            raise

    def _leave(self, num_replies: int) -> None:
        self._num_replies -= num_replies
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._num_replies < self._size:
            number, turn = self._waiting.popleft()
            if not turn.done():
                self._num_replies += number
                turn.set_result(None)

    def _give_up(self, seconds: float) -> None:
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(stalled(seconds))
