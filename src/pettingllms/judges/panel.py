"""A panel: several judges, their mean, and how far they agree.

One judge has a taste, and a policy that learns finds it out. A panel's mean is harder to please by
accident, and where its members disagree its word is worth less: agreement is a metric.
"""

import asyncio
from collections.abc import Sequence
from itertools import combinations

from pydantic import Field

from pettingllms.config import OneJudgeConfig
from pettingllms.judges.base import Judge
from pettingllms.types import Failed, Reward, Scored, Submission


class PanelConfig(OneJudgeConfig):
    """Options of a panel."""

    asks: list[str] = Field(default_factory=list, min_length=2)
    """Names of its judges."""
    quorum: int = Field(default=0, ge=0)
    """Members that must give a verdict; 0: all of them."""

    def members(self) -> list[str]:
        return list(self.asks)


class Panel(Judge):
    """The mean of its members' verdicts."""

    Config = PanelConfig
    config: PanelConfig

    async def score(self, submission: Submission) -> Reward:
        return self._mean(
            await asyncio.gather(*(judge.score(submission) for judge in self._judges))
        )

    async def compare(self, one: Submission, other: Submission) -> Reward:
        asked = (judge.compare(one, other) for judge in self._judges)
        return self._mean(await asyncio.gather(*asked))

    @property
    def _judges(self) -> list[Judge]:
        return [self.context.judges[name] for name in self.config.asks]

    def _mean(self, verdicts: Sequence[Reward]) -> Reward:
        given = [verdict.value for verdict in verdicts if isinstance(verdict, Scored)]
        needed = self.config.quorum or len(verdicts)
        if len(given) < max(1, needed):
            reasons = "; ".join(v.reason for v in verdicts if isinstance(v, Failed))
            return Failed(f"{len(given)} of {len(verdicts)} judges spoke: {reasons}", "judge")
        for one, other in combinations(given, 2):
            self.note("agreement", 1 - abs(one - other))
        return Scored(sum(given) / len(given))
