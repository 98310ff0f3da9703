"""Requests in flight: how many a server is given at once, and a deadline for serving alone.

A request that waits its turn in our own queue says nothing about the server, so its deadline does
not run: `served_within` starts a clock, and whatever queues a request stops that clock while it
waits (`off_the_clock`). `InFlight` is such a queue, first in, first out. It also notices a server
that is stuck: if a request runs out of time and the server has answered nothing since the request
was sent, every request that waits for it fails too, so a stuck server costs one deadline and not
one for each round of requests.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from pettingllms.errors import NoAnswerError


class ServiceClock:
    """A deadline that stands still while a request waits in a queue."""

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
        """Whether the time is over, and the work was ended for that."""
        return self._timeout.expired()

    def pause(self) -> None:
        """Stop, until `resume` was called as often."""
        self._num_waits += 1
        when = self._timeout.when()
        if self._num_waits == 1 and self._can_change() and when is not None:
            self._left = max(0.0, when - asyncio.get_running_loop().time())
            self._timeout.reschedule(None)
        if self._outer is not None:
            self._outer.pause()

    def resume(self, restart: bool = False) -> None:
        """Run on with the time that was left, or with all of it."""
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
async def served_within(
    seconds: float, outer: ServiceClock | None = None
) -> AsyncIterator[ServiceClock]:
    """End the work inside with TimeoutError once it was served for so long.

    `outer` is a clock of which this work is a part: it stands still while this one does.
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
def off_the_clock(restart: bool = False) -> Iterator[None]:
    """Stop the clock of the request under way, if it has one. `restart`: all its time is left
    afterwards, as what was done so far is lost."""
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
    """The clock of the request under way."""
    return _CLOCK.get()


def stalled(seconds: float) -> NoAnswerError:
    """What requests get that waited for a server that is stuck."""
    return NoAnswerError(
        f"no request was answered in the last {seconds:g} s, so those that waited were given up"
    )


class InFlight:
    """Places for the replies that one server writes at once.

    A request enters while fewer than `size` replies are under way, whatever its own number: only
    the last siblings of one request may wait inside the server, and no place stays empty.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._num_replies = 0
        self._num_answered = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def place(self, num_replies: int = 1) -> AsyncIterator[None]:
        """Wait for a place, off the clock; it is free again when the block ends."""
        with off_the_clock():
            await self._enter(num_replies)
        answered_before, is_answered = self._num_answered, True  # an error is an answer too
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

    async def _enter(self, num_replies: int) -> None:
        if not self._waiting and self._num_replies < self._size:
            self._num_replies += num_replies
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((num_replies, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(num_replies)  # it had been let in just before
            raise

    def _leave(self, num_replies: int) -> None:
        self._num_replies -= num_replies
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
