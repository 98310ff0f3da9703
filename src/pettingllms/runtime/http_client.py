"""A JSON client for one URL, with an API key and retries while the server is busy or restarting.

The key comes from an environment variable. It is sent only over https or to this machine, never
through a proxy to this machine, and never appears in messages.
"""

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pettingllms.errors import ConfigError, NoAnswerError, RequestRefusedError
from pettingllms.runtime.in_flight import InFlight

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("localhost", "127.0.0.1", "::1")
RETRY_STATUS = (408, 409, 429, 500, 502, 503, 504)
"""Status codes after which a request is retried."""
REFUSED_STATUS = (400, 413, 422)
"""Status codes of a request that the server rejects for what it contains."""
FIRST_WAIT, MAX_WAIT = 0.25, 30.0
"""Seconds before the first retry, doubled each time; and the longest Retry-After that is
honored."""


class JsonClient:
    """Posts JSON to one URL, with at most `max_concurrent` concurrent requests. Callers set
    timeouts; the wait for a slot does not count toward them."""

    def __init__(
        self, url: str, key: str, source: str, max_concurrent: int = 64, num_tries: int = 6
    ) -> None:
        """`key` names the environment variable of the API key; empty to send none. `source` is the
        subject of configuration errors."""
        self.url = url
        self._key = os.environ.get(key, "").strip() if key else ""
        parts = urlsplit(url)
        self.is_local = parts.hostname in LOOPBACK
        self._num_tries = num_tries
        self._in_flight = InFlight(max_concurrent)
        self._client: httpx.AsyncClient | None = None
        problem = ""
        if key and not self._key:
            problem = f"${key} is not set"
        elif not (self._key.isascii() and self._key.isprintable()):
            problem = f"${key} has characters that are not allowed in an HTTP header"
        elif self._key and parts.scheme != "https" and not self.is_local:
            problem = f"${key} would be sent unencrypted; use https, or unset the variable"
        if problem:
            raise ConfigError(source, [problem])

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request. They may contain the key, so never print them."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    async def post(self, body: dict[str, Any]) -> Any:
        """Post JSON and return the JSON response; raise `NoAnswerError` with the last error
        on failure."""
        async with self._in_flight.place():
            return await self._post(json.dumps(body).encode())

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def redact(self, text: str) -> str:
        """The first characters of a response or an error, without the key, which they may echo."""
        return (text.replace(self._key, "[key]") if self._key else text)[:200]

    async def _post(self, body: bytes) -> Any:
        import httpx

        client = self._opened()
        problem, wait, kind = "", 0.0, NoAnswerError
        for number in range(self._num_tries):
            await asyncio.sleep(wait)
            wait = FIRST_WAIT * 2**number
            try:
                answer = await client.post(self.url, content=body)
                if answer.status_code == httpx.codes.OK:
                    return answer.json()
                problem = f"HTTP {answer.status_code}: {answer.text}"
                if answer.status_code not in RETRY_STATUS:
                    is_refused = answer.status_code in REFUSED_STATUS
                    kind = RequestRefusedError if is_refused else NoAnswerError
                    break
                wait = max(wait, _retry_after(answer.headers.get("Retry-After", "")))
            except (httpx.TransportError, ValueError, RecursionError) as error:
                problem = repr(error)  # ValueError and RecursionError: the response is not JSON
        raise kind(f"{self.url} did not answer: {self.redact(problem)}")

    def _opened(self) -> "httpx.AsyncClient":
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=None,  # noqa: S113 - see the class
                headers={"Content-Type": "application/json", **self.headers},
                trust_env=not self.is_local,
            )
        return self._client


def _retry_after(header: str) -> float:
    """Seconds of a Retry-After header, at most MAX_WAIT."""
    whole = header.isascii() and header.isdigit() and len(header) < 6
    return min(MAX_WAIT, float(header)) if whole else 0.0
