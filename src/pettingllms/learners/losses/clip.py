"""PPO's clipped loss (Schulman et al., 2017), one ratio per token.

The bounds differ as in DAPO (Yu et al., 2025): unlikely tokens need room to rise. The bound for
negative advantages is the dual clip (Ye et al., 2020). Without it, a token whose probability has
since risen has an unbounded gradient.

Ratios are clipped as logarithms. Clipping and exp commute, so this is the published loss. But the
gradient of a ratio that overflows would be 0 x inf, which is NaN and destroys all weights; a
clipped token must have no gradient.
"""
# ruff: noqa: N803, N806 - shapes are in capitals

import math
from typing import TYPE_CHECKING

from pydantic import Field

from pettingllms.config import LossConfig
from pettingllms.learners.losses.base import Loss, LossInputs, Terms

if TYPE_CHECKING:
    from torch import Tensor


class ClipLossConfig(LossConfig):
    """Options of `clip`."""

    type: str = "clip"
    """One clipped ratio per token."""
    clip_low: float = Field(default=0.2, ge=0, lt=1)
    """How far the ratio may fall below 1."""
    clip_high: float = Field(default=0.28, ge=0)
    """How far the ratio may rise above 1."""
    dual_clip: float = Field(default=3.0, ge=1)
    """Upper bound of the ratio where the advantage is negative."""
    max_importance_weight: float = Field(default=2.0, gt=0)
    """Upper bound of the importance weight that corrects staleness and the train-inference
    mismatch."""
    importance_weights: bool = True
    """Weight each token by learner probability over sampler probability. false: no correction, for
    comparisons."""

    def unused_keys(self) -> set[str]:
        """A switch at its usual value."""
        return {"importance_weights"}


class ClipLoss(Loss):
    """min(rA, clip(r)A), for A < 0 at least dual_clip A; times a truncated importance weight."""

    Config = ClipLossConfig
    config: ClipLossConfig

    def objective(self, inputs: LossInputs) -> Terms:
        log_ratio_BT = inputs.logp_BT - inputs.old_logp_BT
        log_weight_BT = inputs.old_logp_BT - inputs.sampler_logp_BT
        return clipped(log_ratio_BT, log_weight_BT, inputs.token_advantages(), self.config)


def clipped(
    log_ratio_BT: "Tensor", log_weight_BT: "Tensor", advantage_BT: "Tensor", config: ClipLossConfig
) -> Terms:
    """The clipped objective. Positive advantages bound the ratio from above only, negative ones
    from both sides."""
    low, high = math.log1p(-config.clip_low), math.log1p(config.clip_high)
    dual, cap = math.log(config.dual_clip), math.log(config.max_importance_weight)
    good_BT, bad_BT = advantage_BT > 0, advantage_BT < 0
    ratio_BT = log_ratio_BT.clamp(min=low, max=dual).where(bad_BT, log_ratio_BT.clamp(max=high))
    if not config.importance_weights:
        log_weight_BT = log_weight_BT.new_zeros(log_weight_BT.shape)
    weight_BT = log_weight_BT.clamp(max=cap).exp()
    return weight_BT * advantage_BT * ratio_BT.exp(), {
        "clipped": (good_BT & (log_ratio_BT > high)) | (bad_BT & (log_ratio_BT < low)),
        "dual_clipped": bad_BT & (log_ratio_BT > dual),
        "weight": weight_BT,
        "weight_capped": log_weight_BT > cap,
    }
