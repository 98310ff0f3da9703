"""How much one caller may ask for: bodies, calls a second, calls at once.

A body is read to its limit and no further, within a time; what is more is refused unread. Parsing
and validating hold the interpreter's lock, so that a thread does not help: what a body may hold is
bounded such that either takes less than 50 ms.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from pettingllms.gateway.calls import CallError, read_text
from pettingllms.gateway.session import Session

MAX_DIGITS = 12
"""Of a length that a request announces."""
SLICE = 8_192
"""Bytes that are looked at in one go."""
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
"""A string of JSON, or the beginning of one: then the group is empty."""
WINDOW = 5.0
"""Seconds over which the calls of an episode are counted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a gateway."""

    max_body_bytes: int = 4_000_000
    max_objects: int = 10_000
    """JSON objects in a body: messages, their parts, tools, schemas."""
    max_values: int = 200_000
    """JSON values of any kind in a body, such as ids of a prompt."""
    max_messages: int = 2_000
    """Of one chat, calls of tools included."""
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


async def read_body(request: Request, bounds: Bounds, max_bytes: int | None = None) -> bytes:
    """The body of a request."""
    most = bounds.max_body_bytes if max_bytes is None else max_bytes
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or len(told) > MAX_DIGITS or int(told) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        seconds = bounds.body_seconds
        raise CallError(408, f"the body did not come within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise CallError(400, "the body was cut short") from None
    return bytes(body)


def parse_json(body: bytes, bounds: Bounds) -> dict[str, Any]:
    """The object in a request's body."""
    check_size(body, bounds)
    try:
        found = read_text(body.decode("utf-8"), _no_number)
    except ValueError as error:
        raise CallError(400, f"the body is no JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise CallError(400, "the body is no JSON object")
    return found


def check_size(body: bytes, bounds: Bounds) -> None:
    """Refuse JSON of too many values before it is parsed. Text is not counted, however long."""
    if body.count(b"{") <= bounds.max_objects and _num_signs(body) <= bounds.max_values:
        return  # text included, so that it needs no closer look
    num_objects = num_values = 0
    opened = b""
    """The beginning of a string that a slice ended in."""
    for start in range(0, len(body), SLICE):
        bare = STRING.sub(rb'"\1', opened + body[start : start + SLICE])
        num_quotes = bare.count(b'"')
        opened = b'"\\' if bare.endswith(b"\\") else b'"'
        opened = opened if num_quotes % 2 else b""
        num_objects += bare.count(b"{")
        num_values += bare.count(b",") + bare.count(b"{") + bare.count(b"[") + num_quotes // 2
        if num_objects > bounds.max_objects:
            raise CallError(
                400,
                f"the body has more than {bounds.max_objects:,} JSON objects (messages, their "
                "parts, tools); send a shorter chat",
            )
        if num_values > bounds.max_values:
            raise CallError(400, f"the body has more than {bounds.max_values:,} JSON values")


def _num_signs(body: bytes) -> int:
    """No fewer than the values that the body holds."""
    return sum(map(body.count, (b",", b"{", b"[", b'"')))


def _too_large(most: int) -> CallError:
    return CallError(413, f"the body has more than {most} bytes")


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")
