"""Rate limits of a judge: concurrent calls and tokens per minute.

A server that receives too many requests rejects them, and each rejection costs a retry. Calls
therefore wait here, in order, for a free slot and for tokens.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MINUTE = 60.0


class Limits:
    """Slots and a token bucket that holds half a minute of tokens."""

    def __init__(self, max_concurrent: int, tokens_per_minute: int) -> None:
        self._free = asyncio.Semaphore(max_concurrent)
        self._rate = tokens_per_minute / MINUTE
        self._left = self._most = tokens_per_minute / 2
        self._since = time.monotonic()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def slot(self, num_tokens: int) -> AsyncIterator[None]:
        """A slot for one call that may use `num_tokens` tokens."""
        async with self._free:
            if self._rate:
                async with self._turn:
                    await self._take(num_tokens)
            yield

    def settle(self, expected: int, used: int) -> None:
        """Correct the bucket once the real number of tokens is known."""
        self._left += expected - used

    async def _take(self, num_tokens: int) -> None:
        """Wait until the tokens are available; a call larger than the bucket waits for a full
        bucket and leaves it in debt."""
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
