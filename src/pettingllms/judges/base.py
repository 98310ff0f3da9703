"""The contract of a judge: score one answer, compare two, and never invent a number.

A verdict is `Scored` from 0 to 1, or `Failed`, which is excluded from training. Comparison is
derived from scores by default, so a verifier only implements `score`; a judge that compares better
than it scores overrides `compare`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pettingllms.config import OneJudgeConfig
from pettingllms.config.judge import RuleConfig
from pettingllms.types import Failed, Message, Renderer, Reward, Sampler, Scored, Submission
from pettingllms.types.sampling import WHOLE, Truncation

WIN, TIE, LOSS = Scored(1.0), Scored(0.5), Scored(0.0)
Read = Callable[[Sequence[Message], Sequence[str]], Awaitable[list[float] | Failed]]
"""Takes a prompt and candidate replies; returns the log-prob of each reply."""


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """The policy that an LLM judge samples from."""

    policy: str
    sampler: Sampler
    renderer: Renderer
    temperature: float = 0.0
    truncation: Truncation = WHOLE
    read: Read | None = None
    """Log-probs of given replies, if the engine supports them."""
    special: tuple[str, ...] = ()
    """Control tokens of the model's tokenizer."""


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What a judge is constructed with."""

    rule: Callable[[Submission, str], Reward]
    """The environment's rule, or one named part of it."""
    judge_model: Callable[[str], JudgeModel]
    """The judge model of a policy, by name."""
    judges: Mapping[str, "Judge"] = field(default_factory=dict)
    """Judges constructed so far, by name."""
    seed: int = 0


class Judge(ABC):
    """Base class of judges. Subclass it, implement `score`, and set judge.judges.NAME.kind."""

    Config: ClassVar[type[OneJudgeConfig]] = OneJudgeConfig
    """The options that a configuration file may set under [judge.judges.NAME]."""

    def __init__(self, name: str, config: OneJudgeConfig, context: JudgeContext) -> None:
        self.name = name
        self.config = config
        self.context = context
        self.noted: dict[str, list[float]] = {}
        """Values recorded since `metrics` was last called."""

    @abstractmethod
    async def score(self, submission: Submission) -> Reward:
        """Score an answer from 0 to 1."""

    async def compare(self, one: Submission, other: Submission) -> Reward:
        """Compare two answers: 1 if the first is better, 0 if the second is, 0.5 for a tie."""
        scores = [await self.score(submission) for submission in (one, other)]
        failed = next((score for score in scores if isinstance(score, Failed)), None)
        if failed is not None:
            return failed
        first, second = (score.value for score in scores if isinstance(score, Scored))
        if abs(first - second) <= self.config.margin:
            return TIE
        return WIN if first > second else LOSS

    async def close(self) -> None:  # noqa: B027 - optional hook
        """Release connections and other external resources."""

    def note(self, name: str, value: float) -> None:
        """Record a value for the metrics of this step."""
        self.noted.setdefault(name, []).append(value)

    def metrics(self) -> dict[str, float]:
        """Means of the values recorded since the last call; names with `num_` are sums."""
        noted, self.noted = self.noted, {}
        return {
            name: sum(values) / (1 if name.startswith("num_") else len(values))
            for name, values in noted.items()
        }


class RuleJudge(Judge):
    """Scores by `Environment.rule`."""

    Config = RuleConfig
    config: RuleConfig

    async def score(self, submission: Submission) -> Reward:
        return self.context.rule(submission, self.config.part)
