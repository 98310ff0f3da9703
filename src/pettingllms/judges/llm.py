"""An LLM judge: a frozen policy of the run or any OpenAI-compatible API.

LLM judges have a position bias: most prefer the first answer. Each pair is therefore shown in both
orders and the verdicts are averaged, which removes a purely positional bias exactly; its size is a
metric.

An answer might confuse the model until it replies without a verdict, fill its context, or make its
server refuse the prompt, and so avoid a bad grade. In that case the judge scores a plain control
answer: if that works and the submission still gets no verdict, the submission loses.
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
from pettingllms.judges.requests import (
    Cache,
    JudgeRequests,
    Reader,
    Unreadable,
    key_of,
    no_verdict,
)
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
"""Control answers that any judge can score."""


class LlmConfig(OneJudgeConfig):
    """Options of an LLM judge."""

    policy: str
    """Policy in [policies] that judges; its kind is frozen or api."""
    verdict: Literal["written", "read"] = "written"
    """`written`: the model generates its verdict. `read`: the engine returns the log-prob of each
    possible verdict; use it for frozen policies and small models that write invalid JSON."""
    criteria: str = ""
    """Judging criteria that replace those of the environment."""
    swap: bool = True
    """Show every pair in both orders and average, to remove position bias."""
    num_tries: int = Field(default=3, ge=1)
    """Tries before a missing verdict counts as a failure."""
    max_concurrent: int = Field(default=8, ge=1)
    """Concurrent calls."""
    tokens_per_minute: int = Field(default=0, ge=0)
    """Rate limit on prompt and reply tokens; 0: no limit."""
    seconds: float = Field(default=60.0, gt=0)
    """Timeout of one call."""
    max_tokens: int = Field(default=32, ge=1)
    """Maximum tokens of a verdict."""
    max_letters: int = Field(default=6000, ge=100)
    """Characters of an answer that are shown to the judge."""
    cache: int = Field(default=10_000, ge=0)
    """Maximum number of cached verdicts."""

    def policies(self) -> list[str]:
        return [self.policy]


class LlmJudge(Judge):
    """Judges with a language model."""

    Config = LlmConfig
    config: LlmConfig

    def __init__(self, name: str, config: LlmConfig, context: JudgeContext) -> None:
        super().__init__(name, config, context)
        self._judge_model = context.judge_model(config.policy)
        if config.verdict == "read" and self._judge_model.read is None:
            raise ConfigError(
                f"judge.judges.{name}",
                [f"'{config.policy}' returns no log-probs; set verdict = \"written\""],
            )
        limits = Limits(config.max_concurrent, config.tokens_per_minute)
        self._requests = JudgeRequests(
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
        """The verdict on answers that the model cannot judge although it judges control answers."""
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
        forward, swapped = await asyncio.gather(first, self._ordered(other, one))
        if isinstance(forward, Failed) or isinstance(swapped, Failed):
            return forward if isinstance(forward, Failed) else swapped
        self.note("first_place_share", (forward.value + swapped.value) / 2)
        self.note("consistent_share", float(abs(forward.value - (1 - swapped.value)) < 0.5))
        return Scored((forward.value + 1 - swapped.value) / 2)

    def metrics(self) -> dict[str, float]:
        self.note("num_tokens", self._requests.num_tokens)
        self.note("num_cached", self._cache.num_hits)
        self._requests.num_tokens = self._cache.num_hits = 0
        return super().metrics()

    async def _ordered(self, one: Submission, other: Submission) -> Reward:
        """The score of the first answer when the pair is shown in this order."""
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
                return await self._requests.ask(messages, read, seed)
            return _expected(await self._requests.choose(messages, list(choices)), choices)

        return await self._cache.verdict(key_of(*texts), make)

    def _criteria(self, submission: Submission) -> str:
        return self.config.criteria or submission.criteria or DEFAULT

    def _shown(self, submission: Submission) -> Submission:
        return Submission(self._plain(submission.question), "")

    def _plain(self, text: str) -> str:
        return plain(text, self.config.max_letters, self._judge_model.special)


def _expected(logprobs: list[float] | Failed, choices: dict[str, float]) -> Reward:
    """The mean verdict, weighted by the probability of each possible verdict."""
    if isinstance(logprobs, Failed):
        return no_verdict(logprobs)
    most = max(logprobs)
    if not math.isfinite(most):
        return Failed("the engine returned no finite log-probs", "judge")
    weights = [math.exp(logprob - most) for logprob in logprobs]
    score = sum(w * value for w, value in zip(weights, choices.values(), strict=True))
    return Scored(score / sum(weights))
