"""A judge at work on one batch: in time, with ties where answers are the same, and watched.

The second judge is one that nobody is paid by. A policy that learns to please the first one and not
to be better is seen by it: the gap between the two grows.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

from pettingllms.config import JudgeConfig
from pettingllms.config.judge import RULE
from pettingllms.judges.base import TIE, Judge, JudgeContext
from pettingllms.judges.rule import RuleJudge
from pettingllms.registry import JUDGES
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Scored, Submission

MANY = 10_000
"""Parts in which a share is drawn."""


def make_judges(config: JudgeConfig, context: JudgeContext) -> dict[str, Judge]:
    """The judges that a configuration asks, by name; members of a panel before it."""
    made: dict[str, Judge] = {}
    for name in reversed(config.named()):
        place = JudgeContext(context.rule, context.judge_model, made, context.seed)
        section = config.judges.get(name)
        if section is None:
            assert name == RULE, name  # noqa: S101 - see judge_problems
            made[name] = RuleJudge(name, RuleJudge.Config(kind=RULE), place)
        else:
            made[name] = JUDGES.load(section.kind)(name, section, place)
    return made


@dataclass(slots=True)
class JudgedBatch:
    """One batch's verdicts, each of both judges."""

    config: JudgeConfig
    judges: Mapping[str, Judge]
    deadline: float
    """By the event loop's clock."""
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """What the judge said, and what the held-out one said of the same."""

    async def score(self, submission: Submission) -> Reward:
        """What the judge says of an answer."""
        own = self._in_time(self.judges[self.config.by].score(submission))
        if not self._is_watched(submission.question, submission.answer):
            return await own
        held_out = self.judges[self.config.held_out].score(submission)
        return self._both(*await asyncio.gather(own, self._in_time(held_out)))

    async def compare(self, one: Submission, other: Submission) -> Reward:
        """What the judge says of two; the same answer twice is a tie, and nobody is asked."""
        if one.answer == other.answer:
            return TIE
        own = self._in_time(self.judges[self.config.by].compare(one, other))
        if not self._is_watched(one.question, one.answer, other.answer):
            return await own
        held_out = self.judges[self.config.held_out].compare(one, other)
        return self._both(*await asyncio.gather(own, self._in_time(held_out)))

    def _is_watched(self, *texts: str) -> bool:
        share = self.config.held_out_share * MANY
        return bool(self.config.held_out) and derive_seed("held out", *texts) % MANY < share

    def _both(self, own: Reward, held_out: Reward) -> Reward:
        if isinstance(own, Scored) and isinstance(held_out, Scored):
            self.pairs.append((own.value, held_out.value))
        return own

    async def _in_time(self, work: Awaitable[Reward]) -> Reward:
        try:
            async with asyncio.timeout_at(self.deadline):
                return await work
        except TimeoutError:
            return Failed(f"not judged within {self.config.timeout:g} s (judge.timeout)", "judge")
