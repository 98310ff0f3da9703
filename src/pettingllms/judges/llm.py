"""A model that judges: a frozen policy of the run, or any OpenAI-compatible API.

Such judges favour a place: most of them like what stands first. So a pair is shown in both orders
and the verdicts are averaged, which takes a bias that depends on the place alone away exactly; how
large it was is a metric.

An answer could confuse the model until it replies with no verdict, and so void its own grade. Then
a plain answer of ours is judged: if the model can do that, and still not judge the other, that one
loses.
"""

import asyncio
import math
from dataclasses import replace
from typing import Literal

from pydantic import Field

from pettingllms.config import OneJudgeConfig
from pettingllms.errors import ConfigError
from pettingllms.judges.base import LOSS, TIE, WIN, Judge, JudgeContext
from pettingllms.judges.quoting import nonce, plain
from pettingllms.judges.rate_limits import Limits
from pettingllms.judges.requests import Asker, Cache, Reader, Unreadable, key_of
from pettingllms.judges.verdicts import (
    CHOICES,
    SCORES,
    comparing,
    read_score,
    read_winner,
    scoring,
)
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Message, Reward, Scored, Submission

DEFAULT = "Judge how well each does what the task asks."
PLAIN_ANSWERS = ("I do not know.", "I have no answer to that.")
"""Answers that confuse nobody."""


class LlmConfig(OneJudgeConfig):
    """Options of a model that judges."""

    policy: str
    """Policy of [policies] that it speaks through, of the kind frozen or api."""
    verdict: Literal["written", "read"] = "written"
    """`written`: the model writes its verdict. `read`: none is written, the engine says how likely
    each verdict is; for frozen policies, and small ones that write poor JSON."""
    criteria: str = ""
    """What to look at, in place of what the environment says."""
    swap: bool = True
    """Show every pair in both orders and average. Without it the place of an answer counts."""
    num_tries: int = Field(default=3, ge=1)
    """How often it is asked before a verdict that is none is a failure."""
    max_concurrent: int = Field(default=8, ge=1)
    """Calls that are under way at once."""
    tokens_per_minute: int = Field(default=0, ge=0)
    """Tokens of prompts and replies; 0: no limit."""
    seconds: float = Field(default=60.0, gt=0)
    """How long one call may take."""
    max_tokens: int = Field(default=32, ge=1)
    """Tokens of a verdict."""
    max_letters: int = Field(default=6000, ge=100)
    """Letters of an answer that are shown."""
    cache: int = Field(default=10_000, ge=0)
    """Verdicts that are kept, so that the same pair is not asked about twice."""

    def policies(self) -> list[str]:
        return [self.policy]


class LlmJudge(Judge):
    """Asks a model."""

    Config = LlmConfig
    config: LlmConfig

    def __init__(self, name: str, config: LlmConfig, context: JudgeContext) -> None:
        super().__init__(name, config, context)
        self._judge_model = context.judge_model(config.policy)
        if config.verdict == "read" and self._judge_model.read is None:
            raise ConfigError(
                f"judge.judges.{name}",
                [f"'{config.policy}' has no engine to read; set verdict = \"written\""],
            )
        limits = Limits(config.max_concurrent, config.tokens_per_minute)
        self._asker = Asker(
            self._judge_model, limits, config.num_tries, config.seconds, config.max_tokens
        )
        self._cache = Cache(config.cache)

    async def score(self, submission: Submission) -> Reward:
        verdict = await self._score(submission)
        if not isinstance(verdict, Unreadable):
            return verdict
        if isinstance(await self._score(replace(submission, answer=PLAIN_ANSWERS[0])), Failed):
            return verdict
        verdict = await self._score(submission)
        return self._confused(LOSS) if isinstance(verdict, Unreadable) else verdict

    async def compare(self, one: Submission, other: Submission) -> Reward:
        verdict = await self._compare(one, other)
        if not isinstance(verdict, Unreadable):
            return verdict
        known, also = (replace(one, answer=answer) for answer in PLAIN_ANSWERS)
        if isinstance(await self._compare(known, also), Failed):
            return verdict
        verdict = await self._compare(one, other)
        if not isinstance(verdict, Unreadable):
            return verdict
        alone = await asyncio.gather(self._compare(one, known), self._compare(other, known))
        first, second = (isinstance(found, Scored) for found in alone)
        return self._confused(TIE if first == second else WIN if first else LOSS)

    def _confused(self, verdict: Scored) -> Scored:
        """What follows for answers that the model cannot judge while it can judge others."""
        self.note("num_confused", 1)
        return verdict

    async def _score(self, submission: Submission) -> Reward:
        answer = self._plain(submission.answer)
        shown = self._shown(submission)
        word = nonce(self.context.seed, shown.question, answer)
        messages = scoring(shown, answer, self._criteria(submission), word)
        return await self._verdict(messages, read_score, SCORES)

    async def _compare(self, one: Submission, other: Submission) -> Reward:
        first = self._ordered(one, other)
        if not self.config.swap:
            return await first
        given, turned = await asyncio.gather(first, self._ordered(other, one))
        if isinstance(given, Failed) or isinstance(turned, Failed):
            return given if isinstance(given, Failed) else turned
        self.note("first_place_share", (given.value + turned.value) / 2)
        self.note("consistent_share", float(abs(given.value - (1 - turned.value)) < 0.5))
        return Scored((given.value + 1 - turned.value) / 2)

    def metrics(self) -> dict[str, float]:
        self.note("num_tokens", self._asker.num_tokens)
        self.note("num_cached", self._cache.num_hits)
        self._asker.num_tokens = self._cache.num_hits = 0
        return super().metrics()

    async def _ordered(self, one: Submission, other: Submission) -> Reward:
        """What the pair in this order is worth to its first."""
        first, second = self._plain(one.answer), self._plain(other.answer)
        shown = self._shown(one)
        word = nonce(self.context.seed, shown.question, first, second)
        messages = comparing(shown, first, second, self._criteria(one), word)
        return await self._verdict(messages, read_winner, CHOICES)

    async def _verdict(
        self, messages: list[Message], read: Reader, choices: dict[str, float]
    ) -> Reward:
        texts = [message.text for message in messages]
        seed = derive_seed(self.context.seed, *texts)

        async def make() -> Reward:
            self.note("num_asked", 1)
            if self.config.verdict == "written":
                return await self._asker.ask(messages, read, seed)
            return _expected(await self._asker.choose(messages, list(choices)), choices)

        return await self._cache.verdict(key_of(*texts), make)

    def _criteria(self, submission: Submission) -> str:
        return self.config.criteria or submission.criteria or DEFAULT

    def _shown(self, submission: Submission) -> Submission:
        return Submission(self._plain(submission.question), "")

    def _plain(self, text: str) -> str:
        return plain(text, self.config.max_letters, self._judge_model.special)


def _expected(logprobs: list[float] | Failed, choices: dict[str, float]) -> Reward:
    """The mean of the verdicts, by how likely each is among them."""
    if isinstance(logprobs, Failed):
        return logprobs
    most = max(logprobs)
    if not math.isfinite(most):
        return Failed("the engine gave no log-probs that are numbers", "judge")
    weights = [math.exp(logprob - most) for logprob in logprobs]
    worth = sum(w * value for w, value in zip(weights, choices.values(), strict=True))
    return Scored(worth / sum(weights))
