"""The judge's contract: score one answer, compare two, and never make up a number.

A verdict is `Scored` from 0 to 1, or `Failed`: a judge that could not judge says so, and nobody is
paid by it. Whoever can score can compare, so a trained verifier is a judge with one method of its
own; a judge that compares better than it scores overrides the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pettingllms.config import OneJudgeConfig
from pettingllms.types import Failed, Message, Renderer, Reward, Sampler, Scored, Submission

WIN, TIE, LOSS = Scored(1.0), Scored(0.5), Scored(0.0)
Read = Callable[[Sequence[Message], Sequence[str]], Awaitable[list[float]]]
"""A prompt and the replies that are asked about in; the log-prob of each out."""


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A policy that a judge speaks through."""

    policy: str
    sampler: Sampler
    renderer: Renderer
    temperature: float = 0.0
    read: Read | None = None
    """How likely each of a few replies is, where an engine can say."""
    special: tuple[str, ...] = ()
    """What the model's tokenizer takes for more than text."""


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What judges are made with."""

    rule: Callable[[Submission, str], Reward]
    """The environment's own word, or one part of it."""
    judge_model: Callable[[str], JudgeModel]
    """The voice of a policy, by its name."""
    judges: Mapping[str, "Judge"] = field(default_factory=dict)
    """Those that were made before."""
    seed: int = 0


class Judge(ABC):
    """Says how good answers are."""

    Config: ClassVar[type[OneJudgeConfig]] = OneJudgeConfig
    """The options that a configuration file may set under [judge.judges.NAME]."""

    def __init__(self, name: str, config: OneJudgeConfig, context: JudgeContext) -> None:
        self.name = name
        self.config = config
        self.context = context
        self.noted: dict[str, list[float]] = {}
        """What was counted since it was last asked for."""

    @abstractmethod
    async def score(self, submission: Submission) -> Reward:
        """How good an answer is, from 0 to 1."""

    async def compare(self, one: Submission, other: Submission) -> Reward:
        """Whether the first is better: 1 if it is, 0 if the other is, 0.5 if neither."""
        scores = [await self.score(submission) for submission in (one, other)]
        failed = next((score for score in scores if isinstance(score, Failed)), None)
        if failed is not None:
            return failed
        first, second = (score.value for score in scores if isinstance(score, Scored))
        if abs(first - second) <= self.config.margin:
            return TIE
        return WIN if first > second else LOSS

    async def close(self) -> None:  # noqa: B027 - most have nothing to do here
        """Let go of what it holds outside this process."""

    def note(self, name: str, value: float) -> None:
        """Count something that is worth a curve."""
        self.noted.setdefault(name, []).append(value)

    def metrics(self) -> dict[str, float]:
        """Means of what was counted since the last time; names that begin with `num_` are sums."""
        noted, self.noted = self.noted, {}
        return {
            name: sum(values) / (1 if name.startswith("num_") else len(values))
            for name, values in noted.items()
        }
