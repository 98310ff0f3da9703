"""Client of a verifier server: a probability, or `Failed` with the reason.

The client retries while the server is busy or restarting, up to a deadline. A response that is not
a probability is a failure, never a number.
"""

from collections.abc import Sequence
from typing import Any

from pettingllms.errors import NoAnswerError
from pettingllms.runtime.http_client import JsonClient
from pettingllms.runtime.in_flight import service_timeout
from pettingllms.types import Failed, Message, Reward, Scored


class VerifierClient:
    """Sends answers to a server started by `pettingllms verifier serve`."""

    def __init__(
        self,
        url: str,
        key: str,
        seconds: float = 60.0,
        num_tries: int = 6,
        max_concurrent: int = 32,
    ) -> None:
        """`key` names the environment variable that holds the API key. `seconds` is the timeout of
        one score including retries; time in the local queue does not count."""
        endpoint = url.rstrip("/") + "/score"
        self._client = JsonClient(endpoint, key, f"verifier at {url}", max_concurrent, num_tries)
        self._seconds = seconds

    async def score(self, messages: Sequence[Message], answer: str) -> Reward:
        """The probability that an answer is correct."""
        chat = [{"role": m.speaker, "content": m.content} for m in messages]
        try:
            async with service_timeout(self._seconds):
                return self._read(await self._client.post({"messages": chat, "answer": answer}))
        except NoAnswerError as error:
            return Failed(str(error), "judge")
        except TimeoutError:
            reason = f"{self._client.url} returned no score within {self._seconds:g} s"
            return Failed(reason, "judge")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _read(self, response: Any) -> Reward:
        score = response.get("score") if isinstance(response, dict) else None
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            words = self._client.redact(repr(response))
            return Failed(f"{self._client.url} returned no probability: {words}", "judge")
        return Scored(float(score))
