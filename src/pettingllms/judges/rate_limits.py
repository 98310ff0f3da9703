"""What a judge may use: calls at once, and tokens a minute.

A server that is asked too fast refuses, and each refusal costs a retry. So calls wait here, for a
place and for tokens, in the order in which they came.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MINUTE = 60.0


class Limits:
    """Places and tokens. Half a minute's tokens may be used at once."""

    def __init__(self, max_concurrent: int, tokens_per_minute: int) -> None:
        self._free = asyncio.Semaphore(max_concurrent)
        self._rate = tokens_per_minute / MINUTE
        self._left = self._most = tokens_per_minute / 2
        self._since = time.monotonic()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def place(self, num_tokens: int) -> AsyncIterator[None]:
        """A place for one call that may use so many tokens."""
        async with self._free:
            if self._rate:
                async with self._turn:
                    await self._take(num_tokens)
            yield

    def settle(self, expected: int, used: int) -> None:
        """A call has used other tokens than it was given."""
        self._left += expected - used

    async def _take(self, num_tokens: int) -> None:
        """Wait until the tokens are there; a call that needs more than there ever are waits for all
        and owes the rest."""
        self._refill()
        missing = min(num_tokens, self._most) - self._left
        if missing > 0:
            await asyncio.sleep(missing / self._rate)
            self._refill()
        self._left -= num_tokens

    def _refill(self) -> None:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._rate)
        self._since = now
