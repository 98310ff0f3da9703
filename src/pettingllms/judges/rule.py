"""The judge that needs no model: the environment's own rule."""

from pettingllms.config.judge import RuleConfig
from pettingllms.judges.base import Judge
from pettingllms.types import Exhibit, Reward


class RuleJudge(Judge):
    """Says what `Environment.rule` says."""

    Config = RuleConfig
    config: RuleConfig

    async def score(self, exhibit: Exhibit) -> Reward:
        return self.hall.rule(exhibit, self.config.part)
