"""A panel of judges: the mean of their verdicts, and how far they agree.

A policy can exploit the bias of one judge. The mean of a panel is harder to exploit, and the
agreement among members is a metric of how reliable it is.
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
    """Averages the verdicts of its members."""

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
            return Failed(
                f"{len(given)} of {len(verdicts)} judges gave a verdict: {reasons}", "judge"
            )
        for one, other in combinations(given, 2):
            self.note("agreement", 1 - abs(one - other))
        return Scored(sum(given) / len(given))
