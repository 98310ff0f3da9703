"""The judge that was trained: a verifier behind its port says how likely an answer is right.

It is served by `pettingllms verifier serve`, in a process of its own, so a run that is judged by it
holds none of its weights, and nothing that learns here can move them.
"""

from pydantic import Field

from pettingllms.config import OneJudgeConfig
from pettingllms.judges.base import Judge, JudgeContext
from pettingllms.judges.verifier_client import VerifierClient
from pettingllms.types import Reward, Submission, user


class VerifierConfig(OneJudgeConfig):
    """Options of a trained verifier."""

    url: str
    """Where it is served, such as http://127.0.0.1:8100."""
    key: str = Field(default="VERIFIER_KEY", min_length=1)
    """Name of the environment variable that holds its key."""
    seconds: float = Field(default=60.0, gt=0)
    """How long one score may take, all tries included."""
    max_concurrent: int = Field(default=32, ge=1)
    """Scores that are asked for at once."""


class VerifierJudge(Judge):
    """Says what a verifier says, and compares by it."""

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
