"""GSPO (Zheng et al., 2025): one ratio per reply, the geometric mean of its tokens' ratios.

Rewards are given to replies, so replies are what is weighted. Each token gets its reply's term:
normalized by "sequence", the sum is the published loss. The ratios are so close to 1 that the paper
clips at 3e-4 below and 4e-4 above; bounds made for tokens hardly ever bind.
"""
# ruff: noqa: N806 - shapes are in capitals

from dataclasses import replace
from typing import Literal

from pydantic import Field

from pettingllms.learners.losses.base import Loss, LossInputs, Terms, reply_mean
from pettingllms.learners.losses.clip import ClipLossConfig, clipped


class GspoLossConfig(ClipLossConfig):
    """Options of `gspo`: those of `clip`, with the defaults of the paper."""

    type: str = "gspo"
    """One clipped ratio per reply."""
    clip_low: float = Field(default=3e-4, ge=0, lt=1)
    """How far the ratio may fall below 1."""
    clip_high: float = Field(default=4e-4, ge=0)
    """How far the ratio may rise above 1."""
    normalize: Literal["token", "sequence", "constant"] = "sequence"
    """As for every loss."""


class GspoLoss(Loss):
    """The clipped objective of whole replies. Advantages per token are averaged over the reply."""

    Config = GspoLossConfig
    config: GspoLossConfig

    def objective(self, inputs: LossInputs) -> Terms:
        mask_BT = inputs.mask_BT
        log_ratio_BT = reply_mean(inputs.logp_BT - inputs.old_logp_BT, mask_BT)
        log_weight_BT = reply_mean(inputs.old_logp_BT - inputs.sampler_logp_BT, mask_BT)
        if inputs.advantage_BT.shape[1] > 1:
            mean_BT = reply_mean(inputs.token_advantages(), mask_BT)
            inputs = replace(inputs, advantage_BT=mean_BT)
        return clipped(log_ratio_BT, log_weight_BT, inputs.token_advantages(), self.config)
