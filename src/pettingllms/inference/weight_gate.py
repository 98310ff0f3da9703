"""Keeps requests and new weights of a whole model apart, and an engine with mixed weights unused.

An update waits for running requests and lets no request start before it ends. It does not wait for
requests in flight, which the engine itself pauses. If an update fails, the engine may have weights
of two versions: requests are refused until another update succeeds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pettingllms.errors import EngineDiedError


class WeightGate:
    """The gate of one engine."""

    def __init__(self) -> None:
        self._updates = asyncio.Lock()
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()
        self._num_requests = 0
        self._interrupted = ""
        """The update that did not finish, or empty."""

    @asynccontextmanager
    async def request(self, in_flight: bool = False) -> AsyncIterator[None]:
        """Use the weights, once no update runs. `in_flight`: later updates do not wait for it."""
        while not self._open.is_set():
            await self._open.wait()
        if self._interrupted:
            raise EngineDiedError(
                f"{self._interrupted} was interrupted, so this engine may have weights of two "
                "versions; it answers after the next complete update"
            )
        if in_flight:
            yield
            return
        self._num_requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_requests -= 1
            if not self._num_requests:
                self._idle.set()

    @asynccontextmanager
    async def update(self, what: str) -> AsyncIterator[None]:
        """Replace the weights, once no request runs that it must wait for."""
        async with self._updates:
            self._open.clear()
            try:
                await self._idle.wait()
                self._interrupted = what
                yield
                self._interrupted = ""
            finally:
                self._open.set()
