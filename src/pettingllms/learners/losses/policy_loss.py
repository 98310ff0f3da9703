"""The loss of a micro-batch: a loss's objective, KL penalty, entropy bonus and normalization.

Shapes: B replies in a micro-batch, T tokens of the longest reply.
"""
# ruff: noqa: N803, N806 - shapes are in capitals

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pettingllms.config import LossConfig
from pettingllms.errors import LearnerError
from pettingllms.learners.losses.base import LossInputs, Terms, reply_mean
from pettingllms.registry import LOSSES


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts over the whole minibatch: all its micro-batches on all ranks.

    Every micro-batch divides by the same counts. So the losses and gradients of micro-batches and
    ranks add up to those of the minibatch, however it is split. Sum them, never average them.
    """

    num_tokens: int
    num_replies: int
    max_reply_tokens: int


def policy_loss(
    inputs: LossInputs, scale: Scale, config: LossConfig
) -> tuple[Tensor, dict[str, Tensor]]:
    """This micro-batch's part of the loss, and its metrics as sums over tokens.

    `max_mismatch` is a maximum, not a sum. Metrics per reply are sums over replies.
    """
    assert config.kl_coef == 0 or inputs.ref_logp_BT is not None  # noqa: S101 - the learner's part
    assert config.entropy_coef == 0 or inputs.entropy_BT is not None  # noqa: S101 - as above
    inputs = _masked(inputs)
    objective_BT, measured = _objective(inputs, config)
    logp_BT, mask_BT = inputs.logp_BT, inputs.mask_BT
    none_BT = torch.zeros_like(logp_BT)
    entropy_BT = none_BT if inputs.entropy_BT is None else inputs.entropy_BT
    ref_kl_BT = none_BT if inputs.ref_logp_BT is None else k3(inputs.ref_logp_BT - logp_BT)
    mismatch_BT = (inputs.old_logp_BT - inputs.sampler_logp_BT).abs()
    if inputs.stale_BT is not None:  # there, the weights differ too
        measured["stale_tokens"] = stale_BT = mask_BT & inputs.stale_BT
        measured["drift"] = mismatch_BT * stale_BT
        mismatch_BT = mismatch_BT.masked_fill(stale_BT, 0)
    measured |= {
        "kl": k3(logp_BT - inputs.old_logp_BT),
        "mismatch": mismatch_BT,
        "tokens": mask_BT,
    }
    if inputs.entropy_BT is not None:
        measured["entropy"] = entropy_BT
    if inputs.ref_logp_BT is not None:
        measured["ref_kl"] = ref_kl_BT
    metrics = {
        name: torch.where(mask_BT, value_BT.detach(), 0).sum(dtype=logp_BT.dtype)
        for name, value_BT in measured.items()
    }
    penalty_BT = config.kl_coef * ref_kl_BT if config.kl_coef else none_BT  # 0 x inf is NaN
    loss_BT = penalty_BT - config.entropy_coef * entropy_BT - objective_BT
    return _normalized(loss_BT, mask_BT, scale, config), metrics | {
        "max_mismatch": mismatch_BT.amax()
    }


def k3(log_ratio: Tensor) -> Tensor:
    """One-sample estimate of the KL divergence from the sampling policy: r - 1 - log r.

    r is the other policy's probability divided by the sampling one's. The estimate is never
    negative; expm1 keeps it so in float32, where exp(x) - 1 - x is negative for small x.
    """
    return torch.expm1(log_ratio) - log_ratio


def _objective(inputs: LossInputs, config: LossConfig) -> Terms:
    given: Any = LOSSES.load(config.type)(config).objective(inputs)
    objective_BT, measured = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(objective_BT, Tensor) or objective_BT.shape != inputs.mask_BT.shape:
        shape = tuple(objective_BT.shape) if isinstance(objective_BT, Tensor) else objective_BT
        raise LearnerError(
            f"objective() of the loss '{config.type}' returned {shape!r:.60} instead of one number "
            f"per token, {tuple(inputs.mask_BT.shape)}, and a dict of metrics"
        )
    return torch.where(inputs.mask_BT, objective_BT, 0), dict(measured)


def _normalized(loss_BT: Tensor, mask_BT: Tensor, scale: Scale, config: LossConfig) -> Tensor:
    if config.normalize == "sequence":
        return reply_mean(loss_BT, mask_BT).sum() / max(1, scale.num_replies)
    full = scale.num_replies * scale.max_reply_tokens
    return loss_BT.sum() / max(1, scale.num_tokens if config.normalize == "token" else full)


def _masked(inputs: LossInputs) -> LossInputs:
    """Zero all values outside the mask before any arithmetic: 0 x inf is NaN, forward and backward.
    Only the current log-probs and the entropy keep their gradient.
    """

    def kept(value_BT: Tensor) -> Tensor:
        return torch.where(inputs.mask_BT, value_BT, 0)

    return LossInputs(
        logp_BT=kept(inputs.logp_BT),
        old_logp_BT=kept(inputs.old_logp_BT).detach(),
        sampler_logp_BT=kept(inputs.sampler_logp_BT).detach(),
        advantage_BT=inputs.advantage_BT.detach(),
        mask_BT=inputs.mask_BT,
        entropy_BT=None if inputs.entropy_BT is None else kept(inputs.entropy_BT),
        ref_logp_BT=None if inputs.ref_logp_BT is None else kept(inputs.ref_logp_BT).detach(),
        stale_BT=inputs.stale_BT,
    )
