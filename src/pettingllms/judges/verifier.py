"""A trained verifier as a judge: it returns the probability that an answer is correct.

`pettingllms verifier serve` serves it in a separate process, so the run holds none of its weights
and training cannot change them.
"""

from pydantic import Field

from pettingllms.config import OneJudgeConfig
from pettingllms.judges.base import Judge, JudgeContext
from pettingllms.judges.verifier_client import VerifierClient
from pettingllms.types import Reward, Submission, user


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
