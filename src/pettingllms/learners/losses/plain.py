"""The policy gradient without a ratio: REINFORCE (Williams, 1992).

With advantages of 1 it is the likelihood, which `pettingllms sft` maximizes.
"""

from pettingllms.config import LossConfig
from pettingllms.learners.losses.base import Loss, LossInputs, Terms


class PlainLossConfig(LossConfig):
    """Options of `plain`."""

    type: str = "plain"
    """No ratio: log-probs weighted by advantages."""


class PlainLoss(Loss):
    """A log p."""

    Config = PlainLossConfig

    def objective(self, inputs: LossInputs) -> Terms:
        return inputs.token_advantages() * inputs.logp_BT, {}
