"""A verifier behind a port, as whoever judges asks it: a number, or `Failed` with the reason.

It is asked again while it is busy or restarting, up to a deadline. What it gives is believed only
if it is a probability: anything else is a failure, never a number.
"""

from collections.abc import Sequence
from typing import Any

from pettingllms.errors import NoAnswerError
from pettingllms.runtime.http_client import KeyedClient
from pettingllms.runtime.in_flight import served_within
from pettingllms.types import Failed, Message, Reward, Scored


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
        `seconds` holds for a score, all tries included; the wait for a place does not count."""
        asked = url.rstrip("/") + "/score"
        self._client = KeyedClient(asked, key, f"verifier at {url}", max_concurrent, num_tries)
        self._seconds = seconds

    async def score(self, messages: Sequence[Message], answer: str) -> Reward:
        """The probability that an answer is right."""
        chat = [{"role": m.speaker, "content": m.content} for m in messages]
        try:
            async with served_within(self._seconds):
                return self._read(await self._client.post({"messages": chat, "answer": answer}))
        except NoAnswerError as error:
            return Failed(str(error), "judge")
        except TimeoutError:
            reason = f"{self._client.url} gave no score within {self._seconds:g} s"
            return Failed(reason, "judge")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    def _read(self, said: Any) -> Reward:
        score = said.get("score") if isinstance(said, dict) else None
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            words = self._client.without_key(repr(said))
            return Failed(f"{self._client.url} gave no probability but: {words}", "judge")
        return Scored(float(score))
