"""How much one caller may ask for: bodies, calls a second, calls at once.

A body is read to its limit and no further, within a time; what is more is refused unread.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from pettingllms.gateway.calls import CallError, read_text
from pettingllms.gateway.session import Session

WINDOW = 5.0
"""Seconds over which the calls of an episode are counted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a gateway."""

    max_body_bytes: int = 4_000_000
    body_seconds: float = 30.0
    """How long a body may take to come in."""
    max_calls_at_once: int = 64
    """Of one episode."""
    max_calls_in_all: int = 4096
    calls_per_second: float = 200.0
    """Of one episode, on average over a few seconds."""


@dataclass(slots=True)
class Use:
    """What one episode has under way, and when it called of late."""

    num_under_way: int = 0
    recent: deque[float] = field(default_factory=deque)


@dataclass(slots=True)
class Traffic:
    """What is under way, in all and by episode."""

    bounds: Bounds
    num_under_way: int = 0
    _uses: dict[int, Use] = field(default_factory=dict)

    @asynccontextmanager
    async def admitted(self, session: Session) -> AsyncIterator[None]:
        """Count a call while it is answered; refuse one too many."""
        use, bounds = self._uses.setdefault(id(session), Use()), self.bounds
        if self.num_under_way >= bounds.max_calls_in_all:
            raise CallError(429, f"{bounds.max_calls_in_all} calls are under way; ask again later")
        if use.num_under_way >= bounds.max_calls_at_once:
            most = bounds.max_calls_at_once
            raise CallError(429, f"{most} calls of this episode are under way; ask again later")
        self._refuse_haste(use)
        self.num_under_way += 1
        use.num_under_way += 1
        try:
            yield
        finally:
            self.num_under_way -= 1
            use.num_under_way -= 1

    def forget(self, session: Session) -> None:
        """The episode is over."""
        self._uses.pop(id(session), None)

    def _refuse_haste(self, use: Use) -> None:
        now = time.monotonic()
        while use.recent and use.recent[0] < now - WINDOW:
            use.recent.popleft()
        if len(use.recent) >= self.bounds.calls_per_second * WINDOW:
            raise CallError(
                429, f"more than {self.bounds.calls_per_second:g} calls a second; ask again later"
            )
        use.recent.append(now)


async def read_json(request: Request, bounds: Bounds) -> dict[str, Any]:
    """The object in a request's body."""
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or int(told) > bounds.max_body_bytes:
        raise _too_large(bounds)
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > bounds.max_body_bytes:
                    raise _too_large(bounds)
    except TimeoutError:
        seconds = bounds.body_seconds
        raise CallError(408, f"the body did not come within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise CallError(400, "the body was cut short") from None
    try:
        found = read_text(body.decode("utf-8"), _no_number)
    except ValueError as error:
        raise CallError(400, f"the body is no JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise CallError(400, "the body is no JSON object")
    return found


def _too_large(bounds: Bounds) -> CallError:
    return CallError(413, f"the body has more than {bounds.max_body_bytes} bytes")


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")
