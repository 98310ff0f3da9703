"""Judging one batch: a deadline, ties for equal answers, and a held-out judge.

The held-out judge gives no reward. If a policy exploits the training judge instead of improving,
the difference between the two judges grows.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from pettingllms.config import JudgeConfig
from pettingllms.config.judge import RULE
from pettingllms.judges.base import TIE, Judge, JudgeContext, RuleJudge
from pettingllms.registry import JUDGES
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Scored, Submission

MANY = 10_000
"""Resolution of the share of verdicts that the held-out judge repeats."""


def make_judges(config: JudgeConfig, context: JudgeContext) -> dict[str, Judge]:
    """Construct the judges of a configuration, by name; members of a panel come first."""
    made: dict[str, Judge] = {}
    for name in reversed(config.named()):
        own_context = JudgeContext(context.rule, context.judge_model, made, context.seed)
        section = config.judges.get(name)
        if section is None:
            assert name == RULE, name  # noqa: S101 - see judge_problems
            made[name] = RuleJudge(name, RuleJudge.Config(kind=RULE), own_context)
        else:
            made[name] = JUDGES.load(section.kind)(name, section, own_context)
    return made


@dataclass(slots=True)
class JudgedBatch:
    """The verdicts on one batch, by the judge and the held-out judge."""

    config: JudgeConfig
    judges: Mapping[str, Judge]
    deadline: float
    """In the time of the event loop."""
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """Verdicts of the judge and of the held-out judge on the same submissions."""

    async def score(self, submission: Submission) -> Reward:
        """Score a submission; the held-out judge scores a share of them too."""
        own = self._before_deadline(self.judges[self.config.by].score(submission))
        if not self._is_held_out(submission.question, submission.answer):
            return await own
        held_out = self.judges[self.config.held_out].score(submission)
        return self._both(*await asyncio.gather(own, self._before_deadline(held_out)))

    async def compare(self, one: Submission, other: Submission) -> Reward:
        """Compare two submissions; equal answers tie without a call."""
        if one.answer == other.answer:
            return TIE
        own = self._before_deadline(self.judges[self.config.by].compare(one, other))
        if not self._is_held_out(one.question, one.answer, other.answer):
            return await own
        held_out = self.judges[self.config.held_out].compare(one, other)
        return self._both(*await asyncio.gather(own, self._before_deadline(held_out)))

    def _is_held_out(self, *texts: str) -> bool:
        share = self.config.held_out_share * MANY
        return bool(self.config.held_out) and derive_seed("held out", *texts) % MANY < share

    def _both(self, own: Reward, held_out: Reward) -> Reward:
        if isinstance(own, Scored) and isinstance(held_out, Scored):
            self.pairs.append((own.value, held_out.value))
        return own

    async def _before_deadline(self, work: Awaitable[Reward]) -> Reward:
        try:
            async with asyncio.timeout_at(self.deadline):
                return await work
        except TimeoutError:
            return Failed(f"not judged within {self.config.timeout:g} s (judge.timeout)", "judge")
