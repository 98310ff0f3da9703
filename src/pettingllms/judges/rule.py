"""A judge without a model: the environment's own rule."""

from pettingllms.config.judge import RuleConfig
from pettingllms.judges.base import Judge
from pettingllms.types import Reward, Submission


class RuleJudge(Judge):
    """Scores by `Environment.rule`."""

    Config = RuleConfig
    config: RuleConfig

    async def score(self, submission: Submission) -> Reward:
        return self.context.rule(submission, self.config.part)
