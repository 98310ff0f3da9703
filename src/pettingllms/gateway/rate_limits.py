"""Limits per caller: size of bodies, calls per second, concurrent calls.

The server stops reading a body at its size or time limit. Parsing and validation hold the GIL, so
threads do not help; limits on the contents of a body keep each under 50 ms.
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

from pettingllms.gateway.calls import CallError, load_json
from pettingllms.gateway.session import Session

MAX_DIGITS = 12
"""Digits of a content-length header."""
SLICE = 8_192
"""Bytes that one regular expression scans at once."""
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
"""A JSON string, or the start of an incomplete one: then the group is empty."""
WINDOW = 5.0
"""Seconds over which the call rate of an episode is averaged."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a gateway."""

    max_body_bytes: int = 4_000_000
    max_objects: int = 10_000
    """JSON objects per body: messages, their parts, tools, schemas."""
    max_values: int = 200_000
    """JSON values of any kind per body, such as prompt ids."""
    max_messages: int = 2_000
    """Messages and tool calls per chat."""
    body_seconds: float = 30.0
    """Time limit to receive a body."""
    max_calls_at_once: int = 64
    """Concurrent calls per episode."""
    max_calls_in_all: int = 4096
    """Concurrent calls of all episodes."""
    calls_per_second: float = 200.0
    """Call rate per episode, averaged over a few seconds."""


@dataclass(slots=True)
class Use:
    """Concurrent and recent calls of one episode."""

    num_active: int = 0
    recent: deque[float] = field(default_factory=deque)
    """Times of recent calls."""


@dataclass(slots=True)
class Traffic:
    """Concurrent calls, in total and by episode."""

    bounds: Bounds
    num_active: int = 0
    _uses: dict[int, Use] = field(default_factory=dict)

    @asynccontextmanager
    async def admitted(self, session: Session) -> AsyncIterator[None]:
        """Count a call while it is active; reject calls beyond the limits."""
        use, bounds = self._uses.setdefault(id(session), Use()), self.bounds
        if self.num_active >= bounds.max_calls_in_all:
            raise CallError(429, f"{bounds.max_calls_in_all} calls are in progress; retry later")
        if use.num_active >= bounds.max_calls_at_once:
            most = bounds.max_calls_at_once
            raise CallError(429, f"{most} calls of this episode are in progress; retry later")
        self._check_rate(use)
        self.num_active += 1
        use.num_active += 1
        try:
            yield
        finally:
            self.num_active -= 1
            use.num_active -= 1

    def forget(self, session: Session) -> None:
        """Drop the counts of an episode that has ended."""
        self._uses.pop(id(session), None)

    def _check_rate(self, use: Use) -> None:
        now = time.monotonic()
        while use.recent and use.recent[0] < now - WINDOW:
            use.recent.popleft()
        if len(use.recent) >= self.bounds.calls_per_second * WINDOW:
            raise CallError(
                429, f"more than {self.bounds.calls_per_second:g} calls per second; retry later"
            )
        use.recent.append(now)


async def read_body(request: Request, bounds: Bounds, max_bytes: int | None = None) -> bytes:
    """Read the body of a request within the limits."""
    most = bounds.max_body_bytes if max_bytes is None else max_bytes
    size = request.headers.get("content-length", "0")
    if not size.isascii() or not size.isdigit() or len(size) > MAX_DIGITS or int(size) > most:
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
        raise CallError(408, f"the body did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise CallError(400, "the client disconnected before the end of the body") from None
    return bytes(body)


def parse_json(body: bytes, bounds: Bounds) -> dict[str, Any]:
    """Parse the JSON object in the body of a request."""
    check_size(body, bounds)
    try:
        found = load_json(body.decode("utf-8"), _no_number)
    except ValueError as error:
        raise CallError(400, f"the body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise CallError(400, "the body is not a JSON object")
    return found


def check_size(body: bytes, bounds: Bounds) -> None:
    """Reject JSON with too many values before parsing. The length of strings does not count."""
    if body.count(b"{") <= bounds.max_objects and _max_num_values(body) <= bounds.max_values:
        return  # an upper bound, which includes characters inside strings
    num_objects = num_values = 0
    opened = b""
    """Start of a string that continues in the next slice."""
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


def _max_num_values(body: bytes) -> int:
    """An upper bound on the number of values in a body."""
    return sum(map(body.count, (b",", b"{", b"[", b'"')))


def _too_large(most: int) -> CallError:
    return CallError(413, f"the body is larger than {most} bytes")


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
