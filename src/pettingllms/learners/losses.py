"""What a learner minimises: pure functions from log-probs and advantages to one number.

Shapes: B replies in a micro-batch, T tokens of the longest reply.

Ratios are clipped while they are still logarithms. Clipping and exp commute, so this is the
published loss; but a ratio that overflows would have the gradient 0 x inf, which is not a number
and spoils every weight, where a clipped token must have no gradient at all.
"""
# ruff: noqa: N803, N806, N815 - shapes are in capitals

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pettingllms.config import LossConfig


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch. What stands where the mask is false may be anything, even not a number."""

    logp_BT: Tensor
    """The learner's log-probs now, with gradient."""
    old_logp_BT: Tensor
    """The learner's log-probs when the batch began."""
    sampler_logp_BT: Tensor
    """The log-probs as the sampler gave them."""
    advantage_BT: Tensor
    """Of each token; one column if all tokens of a reply have one advantage."""
    mask_BT: Tensor
    """True on the tokens of the response."""
    entropy_BT: Tensor | None = None
    """With gradient; needed if loss.entropy_coef is not 0."""
    ref_logp_BT: Tensor | None = None
    """Log-probs of the policy as it was before training; needed if loss.kl_coef is not 0, and for
    `dpo`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts over the whole minibatch: all its micro-batches on all ranks.

    Every micro-batch divides by the same counts, so the losses (and gradients) of micro-batches
    and ranks add up to the minibatch's however it was cut. They are to be added, never averaged.
    """

    num_tokens: int
    num_replies: int
    max_reply_tokens: int


Terms = tuple[Tensor, dict[str, Tensor]]
"""What each token adds to the objective, and what was measured on the way."""


def policy_loss(
    inputs: LossInputs, scale: Scale, config: LossConfig
) -> tuple[Tensor, dict[str, Tensor]]:
    """This micro-batch's part of the loss, and its metrics as sums over tokens.

    Of the metrics only `max_mismatch` is no sum: it is the largest of its kind. Those of `dpo` are
    sums over replies, and `replies` is how many they are.
    """
    assert config.kl_coef == 0 or inputs.ref_logp_BT is not None  # noqa: S101 - the learner's part
    assert config.entropy_coef == 0 or inputs.entropy_BT is not None  # noqa: S101 - as above
    inputs = _without_garbage(inputs)
    objective_BT, measured = LOSSES[config.type](inputs, config)
    logp_BT, mask_BT = inputs.logp_BT, inputs.mask_BT
    none_BT = torch.zeros_like(logp_BT)
    entropy_BT = none_BT if inputs.entropy_BT is None else inputs.entropy_BT
    ref_kl_BT = none_BT if inputs.ref_logp_BT is None else k3(inputs.ref_logp_BT - logp_BT)
    mismatch_BT = (inputs.old_logp_BT - inputs.sampler_logp_BT).abs()
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
    held_BT = config.kl_coef * ref_kl_BT if config.kl_coef else none_BT  # 0 x inf is not a number
    loss_BT = held_BT - config.entropy_coef * entropy_BT - objective_BT
    return _normalized(loss_BT, mask_BT, scale, config), metrics | {
        "max_mismatch": mismatch_BT.amax()
    }


def k3(log_ratio: Tensor) -> Tensor:
    """Divergence from the policy that sampled, by one sample: r - 1 - log r, never negative.

    r is the other policy's probability over the sampling one's. expm1, because in float32
    exp(x) - 1 - x comes out negative for the small x that two close policies differ by.
    """
    return torch.expm1(log_ratio) - log_ratio


def clip_terms(inputs: LossInputs, config: LossConfig) -> Terms:
    """PPO (Schulman et al., 2017): a ratio for each token.

    The bounds differ as in DAPO (Yu et al., 2025): unlikely tokens need room to rise. The bound for
    negative advantages is the dual clip (Ye et al., 2020): without it one token that the policy has
    since come to like could push without limit.
    """
    log_ratio_BT = inputs.logp_BT - inputs.old_logp_BT
    log_weight_BT = inputs.old_logp_BT - inputs.sampler_logp_BT
    return _terms(log_ratio_BT, log_weight_BT, inputs.advantage_BT, inputs.mask_BT, config)


def gspo_terms(inputs: LossInputs, config: LossConfig) -> Terms:
    """GSPO (Zheng et al., 2025): one ratio for a whole reply, the geometric mean of its tokens'.

    What is rewarded is the reply, so the reply is what is weighed. Each token gets the reply's
    term: normalised by "sequence", the sum is the published loss. Its ratios are so close to 1 that
    the paper clips at 3e-4 below and 4e-4 above; bounds made for tokens hardly ever bind. Where
    tokens have advantages of their own, the reply has their mean.
    """
    log_ratio_BT = _reply_mean(inputs.logp_BT - inputs.old_logp_BT, inputs.mask_BT)
    log_weight_BT = _reply_mean(inputs.old_logp_BT - inputs.sampler_logp_BT, inputs.mask_BT)
    advantage_BT = inputs.advantage_BT
    if advantage_BT.shape[1] > 1:
        advantage_BT = _reply_mean(torch.where(inputs.mask_BT, advantage_BT, 0), inputs.mask_BT)
    return _terms(log_ratio_BT, log_weight_BT, advantage_BT, inputs.mask_BT, config)


def plain_terms(inputs: LossInputs, _: LossConfig) -> Terms:
    """REINFORCE (Williams, 1992) without any ratio; with advantages of 1, maximum likelihood."""
    return torch.where(inputs.mask_BT, inputs.advantage_BT, 0) * inputs.logp_BT, {}


def dpo_terms(inputs: LossInputs, config: LossConfig) -> Terms:
    """DPO (Rafailov et al., 2023): replies in pairs, the chosen one before the rejected one.

    What a reply is worth to the policy is beta times how much likelier it is now than it was before
    training; a pair's term is the log-probability that Bradley and Terry give to the choice. Each
    token gets its pair's term: normalised by "sequence", the sum is the published loss, the mean
    over pairs. A row without a partner, which a rank with no pairs has, is padding.
    """
    assert inputs.ref_logp_BT is not None  # noqa: S101 - the learner's part
    worth_B = config.beta * (inputs.logp_BT - inputs.ref_logp_BT).sum(1)
    paired = len(worth_B) // 2 * 2
    margin_P = worth_B[:paired:2] - worth_B[1:paired:2]
    margin_B = torch.cat([margin_P.repeat_interleave(2), worth_B[paired:]])
    margin_BT = margin_B[:, None].expand_as(inputs.mask_BT)
    term_BT = torch.where(inputs.mask_BT, torch.nn.functional.logsigmoid(margin_BT), 0)
    share_BT = inputs.mask_BT / inputs.mask_BT.sum(1, keepdim=True).clamp(min=1)  # of its reply
    measured = {"margin": margin_BT * share_BT, "preferred": (margin_BT > 0) * share_BT}
    return term_BT, measured | {"replies": share_BT}


LOSSES: dict[str, Callable[[LossInputs, LossConfig], Terms]] = {
    "clip": clip_terms,
    "gspo": gspo_terms,
    "plain": plain_terms,
    "dpo": dpo_terms,
}


def _terms(
    log_ratio_BT: Tensor,
    log_weight_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    config: LossConfig,
) -> Terms:
    """min(rA, clip(r)A), for A < 0 at least dual_clip A; times a truncated importance weight.

    Written out: a good token's ratio is bounded from above alone, a bad one's from both sides.
    """
    advantage_BT = torch.where(mask_BT, advantage_BT, 0)
    clip_low, clip_high = config.clips
    low, high = math.log1p(-clip_low), math.log1p(clip_high)
    dual, cap = math.log(config.dual_clip), math.log(config.max_importance_weight)
    good_BT, bad_BT = advantage_BT > 0, advantage_BT < 0
    ratio_BT = torch.where(
        bad_BT, log_ratio_BT.clamp(min=low, max=dual), log_ratio_BT.clamp(max=high)
    ).exp()
    weight_BT = log_weight_BT.clamp(max=cap).exp()
    return weight_BT * advantage_BT * ratio_BT, {
        "clipped": (good_BT & (log_ratio_BT > high)) | (bad_BT & (log_ratio_BT < low)),
        "dual_clipped": bad_BT & (log_ratio_BT > dual),
        "weight": weight_BT,
        "weight_capped": log_weight_BT > cap,
    }


def _normalized(loss_BT: Tensor, mask_BT: Tensor, scale: Scale, config: LossConfig) -> Tensor:
    if config.normalization == "sequence":
        return _reply_mean(loss_BT, mask_BT).sum() / max(1, scale.num_replies)
    full = scale.num_replies * scale.max_reply_tokens
    return loss_BT.sum() / max(1, scale.num_tokens if config.normalization == "token" else full)


def _reply_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The mean over each reply's tokens, as a column; 0 for a row of padding."""
    return value_BT.sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)


def _without_garbage(inputs: LossInputs) -> LossInputs:
    """Zeros outside the mask, chosen before any arithmetic: 0 x inf would not be a number, neither
    forward nor back. Log-probs that are not learnt lose their gradient.
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
    )
