"""DPO (Rafailov et al., 2023): replies in pairs, the chosen one before the rejected one.

A reply's implicit reward is beta times the log-ratio of the policy to the reference model. A pair's
term is the log-probability of the choice in the Bradley-Terry model. Each token gets its pair's
term: normalized by "sequence", the sum is the published loss, the mean over pairs.
"""
# ruff: noqa: N806 - shapes are in capitals

from typing import ClassVar, Literal

from pydantic import Field

from pettingllms.config import LossConfig
from pettingllms.learners.losses.base import Loss, LossInputs, Need, Terms


class DpoLossConfig(LossConfig):
    """Options of `dpo`."""

    type: str = "dpo"
    """Pairs of replies; only for `pettingllms dpo`."""
    beta: float = Field(default=0.1, gt=0)
    """Strength of the implicit KL penalty: a small beta lets a policy move far from its initial
    weights."""
    normalize: Literal["token", "sequence", "constant"] = "sequence"
    """As for every loss."""


class DpoLoss(Loss):
    """log sigmoid(margin) of each pair. A row without a partner is padding of a rank without
    pairs."""

    Config = DpoLossConfig
    config: DpoLossConfig
    needs: ClassVar[frozenset[Need]] = frozenset({"pairs", "reference_logprobs"})
    reply_metrics: ClassVar[frozenset[str]] = frozenset({"margin", "preferred"})

    def objective(self, inputs: LossInputs) -> Terms:
        import torch

        assert inputs.ref_logp_BT is not None  # noqa: S101 - the learner provides what it needs
        reward_B = self.config.beta * (inputs.logp_BT - inputs.ref_logp_BT).sum(1)
        paired = len(reward_B) // 2 * 2
        margin_P = reward_B[:paired:2] - reward_B[1:paired:2]
        margin_B = torch.cat([margin_P.repeat_interleave(2), reward_B[paired:]])
        margin_BT = margin_B[:, None].expand_as(inputs.mask_BT)
        term_BT = torch.where(inputs.mask_BT, torch.nn.functional.logsigmoid(margin_BT), 0)
        share_BT = inputs.mask_BT / inputs.mask_BT.sum(1, keepdim=True).clamp(min=1)  # of its reply
        metrics = {"margin": margin_BT * share_BT, "preferred": (margin_BT > 0) * share_BT}
        return term_BT, metrics | {"replies": share_BT}
