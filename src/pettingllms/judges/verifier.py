"""A trained verifier as a judge: it returns the probability that an answer is correct.

`pettingllms verifier serve` serves it in a separate process, so the run holds none of its weights
and training cannot change them.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from pettingllms.config import OneJudgeConfig
from pettingllms.errors import NoAnswerError
from pettingllms.judges.base import Judge, JudgeContext
from pettingllms.runtime.http_client import JsonClient
from pettingllms.runtime.in_flight import service_timeout
from pettingllms.types import Failed, Message, Reward, Scored, Submission, user


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


class VerifierConfig(OneJudgeConfig):
    """Options of a trained verifier."""

    url: str
    """Base URL of the verifier server, such as http://127.0.0.1:8100."""
    key: str = Field(default="VERIFIER_KEY", min_length=1)
    """Name of the environment variable that holds its key."""
    seconds: float = Field(default=60.0, gt=0)
    """Timeout of one score, including retries."""
    max_concurrent: int = Field(default=32, ge=1)
    """Concurrent requests."""


class VerifierJudge(Judge):
    """Scores with a served verifier; comparisons follow from the scores."""

    Config = VerifierConfig
    config: VerifierConfig

    def __init__(self, name: str, config: VerifierConfig, context: JudgeContext) -> None:
        super().__init__(name, config, context)
        self._client = VerifierClient(
            config.url, config.key, config.seconds, max_concurrent=config.max_concurrent
        )

    async def score(self, submission: Submission) -> Reward:
        return await self._client.score([user(submission.question)], submission.answer)

    async def close(self) -> None:
        await self._client.close()
