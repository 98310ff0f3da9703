"""JSON to one address of a server, with a key: asked again while it is busy or restarting.

The key comes from the environment. It is sent over https or to this machine alone, never through a
proxy to this machine, and it is in no message.
"""

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pettingllms.errors import ConfigError, NoAnswerError
from pettingllms.runtime.in_flight import InFlight

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("localhost", "127.0.0.1", "::1")
AGAIN = (408, 409, 429, 500, 502, 503, 504)
"""Answers after which it is worth asking again."""
FIRST_WAIT, MAX_WAIT = 0.25, 30.0
"""Seconds before the second try, then twice as many each time; and the most that a server gets."""


class KeyedClient:
    """Posts to one address, at most `max_concurrent` requests at once. Nothing here ends a request
    that takes too long: whoever asks does, and the wait for a place is not on their clock."""

    def __init__(
        self, url: str, key: str, whose: str, max_concurrent: int = 64, num_tries: int = 6
    ) -> None:
        """`key` is the name of the environment variable that holds the key; empty: none is sent.
        `whose` stands in messages about the configuration."""
        self.url = url
        self._key = os.environ.get(key, "").strip() if key else ""
        parts = urlsplit(url)
        self.is_here = parts.hostname in LOOPBACK
        self._num_tries = num_tries
        self._in_flight = InFlight(max_concurrent)
        self._client: httpx.AsyncClient | None = None
        problem = ""
        if key and not self._key:
            problem = f"${key} is not set"
        elif not (self._key.isascii() and self._key.isprintable()):
            problem = f"${key} has signs that no header may hold"
        elif self._key and parts.scheme != "https" and not self.is_here:
            problem = f"${key} would be sent unencrypted; use https, or unset the variable"
        if problem:
            raise ConfigError(whose, [problem])

    @property
    def headers(self) -> dict[str, str]:
        """What is sent with every request; it may hold the key, so it is never shown."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    async def post(self, body: dict[str, Any]) -> Any:
        """The JSON that the server answers; `NoAnswerError` with its last words if it does not."""
        async with self._in_flight.place():
            return await self._post(json.dumps(body).encode())

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def without_key(self, text: str) -> str:
        """The beginning of what a server, or an error, says: it may say what it was sent."""
        return (text.replace(self._key, "[key]") if self._key else text)[:200]

    async def _post(self, body: bytes) -> Any:
        import httpx

        client = self._opened()
        problem, wait = "", 0.0
        for number in range(self._num_tries):
            await asyncio.sleep(wait)
            wait = FIRST_WAIT * 2**number
            try:
                answer = await client.post(self.url, content=body)
                if answer.status_code == httpx.codes.OK:
                    return answer.json()
                problem = f"HTTP {answer.status_code}: {answer.text}"
                if answer.status_code not in AGAIN:
                    break
                wait = max(wait, _asked_to_wait(answer.headers.get("Retry-After", "")))
            except (httpx.TransportError, ValueError, RecursionError) as error:
                problem = repr(error)  # the last two: what came was no JSON
        raise NoAnswerError(f"{self.url} did not answer: {self.without_key(problem)}")

    def _opened(self) -> "httpx.AsyncClient":
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=None,  # noqa: S113 - see the class
                headers={"Content-Type": "application/json", **self.headers},
                trust_env=not self.is_here,
            )
        return self._client


def _asked_to_wait(header: str) -> float:
    """Seconds that a server asks to be left alone for, within reason."""
    whole = header.isascii() and header.isdigit() and len(header) < 6
    return min(MAX_WAIT, float(header)) if whole else 0.0
