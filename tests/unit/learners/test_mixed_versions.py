"""A batch may hold replies of several policy versions, and a reply tokens of several."""

# ruff: noqa: N806

import math

import pytest

torch = pytest.importorskip("torch")

from pettingllms.config import loss_config
from pettingllms.learners.losses.base import LossInputs
from pettingllms.learners.losses.policy_loss import Scale, policy_loss


def test_each_token_is_corrected_by_its_own_sampler() -> None:
    """By hand: a fresh reply, one of an older version, and one whose version changed after its
    first token. The learner's log-probs are those of the newest weights."""
    now = [[-1.0, -2.0], [-0.5, -1.5], [-1.0, -3.0]]
    sampled = [[-1.0, -2.0], [-0.7, -1.0], [-2.5, -3.0]]
    advantage = [1.0, -2.0, 0.5]
    logp_BT = torch.tensor(now, requires_grad=True)
    inputs = LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=torch.tensor(sampled),
        advantage_BT=torch.tensor(advantage)[:, None],
        mask_BT=torch.ones(3, 2, dtype=torch.bool),
    )
    config = loss_config("clip", max_importance_weight=2.0)
    loss, measured = policy_loss(inputs, Scale(6, 3, 2), config)
    weights = [
        [1.0, 1.0],
        [math.exp(0.2), math.exp(-0.5)],
        [2.0, 1.0],  # exp(1.5) is capped
    ]
    expected = -sum(weight * a for row, a in zip(weights, advantage, strict=True) for weight in row)
    assert float(loss.detach()) == pytest.approx(expected / 6, rel=1e-6)
    loss.backward()
    assert logp_BT.grad is not None
    for row, (given, a) in enumerate(zip(weights, advantage, strict=True)):
        by_hand = [-weight * a / 6 for weight in given]
        assert logp_BT.grad[row].tolist() == pytest.approx(by_hand, rel=1e-5)
    assert float(measured["weight_capped"]) == 1
    assert float(measured["mismatch"]) == pytest.approx(0.2 + 0.5 + 1.5, rel=1e-5)


def test_gspo_corrects_each_reply_by_its_own_sampler() -> None:
    now, sampled = [[-1.0, -2.0], [-0.5, -1.5]], [[-1.0, -2.0], [-0.7, -1.0]]
    logp_BT = torch.tensor(now, requires_grad=True)
    inputs = LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=torch.tensor(sampled),
        advantage_BT=torch.tensor([[1.0], [-2.0]]),
        mask_BT=torch.ones(2, 2, dtype=torch.bool),
    )
    loss, _ = policy_loss(inputs, Scale(4, 2, 2), loss_config("gspo"))
    older = math.exp((0.2 - 0.5) / 2)  # geometric mean of the tokens' weights
    assert float(loss.detach()) == pytest.approx(-(1.0 - 2.0 * older) / 2, rel=1e-6)
