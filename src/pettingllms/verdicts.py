"""A verifier behind a port, as whoever judges asks it: a number, or `Failed` with the reason.

It is asked again while it is busy or restarting, up to a deadline. What it gives is believed only
if it is a probability: anything else is a failure, never a number.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pettingllms.errors import ConfigError
from pettingllms.types import Failed, Message, Reward, Scored

if TYPE_CHECKING:
    import httpx

LOOPBACK = ("localhost", "127.0.0.1", "::1")
AGAIN = (408, 409, 429, 500, 502, 503, 504)
"""Answers after which it is worth asking again."""
FIRST_WAIT = 0.25
"""Seconds before a second try; then twice as long each time."""


class VerifierClient:
    """Asks a verifier that `pettingllms verifier serve` serves."""

    def __init__(
        self,
        url: str,
        key: str,
        seconds: float = 60.0,
        num_tries: int = 6,
        max_concurrent: int = 32,
    ) -> None:
        """`key` is the name of the environment variable that holds the key; the deadline of
        `seconds` holds for a score, all tries included."""
        self._url = url.rstrip("/") + "/score"
        self._key = os.environ.get(key, "")
        if not self._key:
            raise ConfigError(f"verifier at {url}", [f"${key} is not set"])
        parts = urlsplit(url)
        self._is_here = parts.hostname in LOOPBACK
        if parts.scheme != "https" and not self._is_here:
            raise ConfigError(
                f"verifier at {url}", [f"${key} would be sent unencrypted; use https"]
            )
        self._seconds = seconds
        self._num_tries = num_tries
        self._free = asyncio.Semaphore(max_concurrent)
        self._client: httpx.AsyncClient | None = None

    async def score(self, messages: Sequence[Message], answer: str) -> Reward:
        """The probability that an answer is right."""
        chat = [{"role": m.speaker, "content": m.content} for m in messages]
        try:
            async with asyncio.timeout(self._seconds), self._free:
                return await self._ask({"messages": chat, "answer": answer})
        except TimeoutError:
            return Failed(f"{self._url} gave no score within {self._seconds:g} s", "judge")

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _ask(self, body: dict[str, Any]) -> Reward:
        import httpx

        if self._client is None:
            headers = {"Authorization": f"Bearer {self._key}"}
            # No proxy is told a key that is for this machine alone.
            self._client = httpx.AsyncClient(
                timeout=None,  # noqa: S113 - the deadline of a score ends every request
                headers=headers,
                trust_env=not self._is_here,
            )
        problem = ""
        for number in range(self._num_tries):
            if number:
                await asyncio.sleep(FIRST_WAIT * 2 ** (number - 1))
            try:
                answer = await self._client.post(self._url, json=body)
            except httpx.TransportError as error:
                problem = type(error).__name__
                continue
            if answer.status_code == httpx.codes.OK:
                return self._read(answer)
            problem = f"HTTP {answer.status_code}: {self._words(answer)}"
            if answer.status_code not in AGAIN:
                break
        return Failed(f"{self._url} gave no score: {problem}", "judge")

    def _read(self, answer: "httpx.Response") -> Reward:
        try:
            score = answer.json()["score"]
        except (LookupError, TypeError, ValueError, RecursionError):
            score = None
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            return Failed(f"{self._url} gave no probability but: {self._words(answer)}", "judge")
        return Scored(float(score))

    def _words(self, answer: "httpx.Response") -> str:
        """What a server said, without the key should it have said that."""
        return answer.text.replace(self._key, "[key]")[:200]
