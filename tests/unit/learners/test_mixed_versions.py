"""A batch may hold replies of several policy versions, and a reply tokens of several."""

# ruff: noqa: N806

import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pettingllms.config import loss_config
from pettingllms.learners.batch_metrics import Sums, mean_mismatch
from pettingllms.learners.deferred import units_of
from pettingllms.learners.losses.base import LossInputs
from pettingllms.learners.losses.policy_loss import Scale, policy_loss
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.learners.sequences import PaddedSequences
from pettingllms.types import Credit, Turn, VersionRun

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("loss", ["clip", "gspo"])
def test_the_correction_can_be_switched_off(loss: str) -> None:
    """The loss is then that of a batch which the learner's weights sampled."""

    def measured(sampled: list[list[float]], **options: bool) -> tuple[float, float]:
        logp_BT = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]], requires_grad=True)
        inputs = LossInputs(
            logp_BT=logp_BT,
            old_logp_BT=logp_BT.detach(),
            sampler_logp_BT=torch.tensor(sampled),
            advantage_BT=torch.tensor([[1.0], [-2.0]]),
            mask_BT=torch.ones(2, 2, dtype=torch.bool),
        )
        config = loss_config(loss, max_importance_weight=1.5, **options)
        value, metrics = policy_loss(inputs, Scale(4, 2, 2), config)
        return float(value.detach()), float(metrics["weight_capped"])

    own, other = [[-1.0, -2.0], [-0.5, -1.5]], [[-3.0, -4.0], [-0.1, -1.0]]
    assert measured(other, importance_weights=False) == (*measured(own)[:1], 0.0)
    assert measured(other)[0] != measured(own)[0]
    assert measured(other)[1] == 2


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


def test_mismatch_is_measured_on_what_the_current_weights_sampled() -> None:
    logp_BT = torch.tensor([[-1.0, -2.0, -9.0], [-0.5, -1.5, -1.0]], requires_grad=True)
    inputs = LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=torch.tensor([[-1.25, -2.0, 0.0], [-1.5, -1.0, -1.125]]),
        advantage_BT=torch.ones(2, 1),
        mask_BT=torch.tensor([[True, True, False], [True, True, True]]),
        stale_BT=torch.tensor([[False, False, True], [True, True, False]]),
    )
    _, measured = policy_loss(inputs, Scale(5, 2, 3), loss_config("clip"))
    sums = Sums()
    sums.add({name: float(value) for name, value in measured.items()})
    means = sums.means()
    assert means["mismatch"] == pytest.approx((0.25 + 0.125) / 3)
    assert means["max_mismatch"] == pytest.approx(0.25)
    assert means["drift"] == pytest.approx((1.0 + 0.5) / 2)
    assert means["stale_share"] == pytest.approx(2 / 5)


def test_batches_of_one_version_have_no_drift() -> None:
    sums = Sums()
    sums.add({"tokens": 4.0, "mismatch": 1.0, "stale_tokens": 0.0, "drift": 0.0})
    assert sums.means() == {"mismatch": 0.25}


def turn(version: int, *later: tuple[int, int]) -> Turn:
    """A reply of four tokens, the last of which have later versions."""
    ids, logprobs = np.arange(4, dtype=np.int32), np.zeros(4, np.float32)
    runs = tuple(VersionRun(*one) for one in later)
    credit = Credit(advantage=1.0)
    return Turn("r", "p", (), ids, ids, logprobs, "", version, later_versions=runs, credit=credit)


def test_stale_tokens_are_marked_in_every_process() -> None:
    turns = [turn(3), turn(2), turn(1), turn(2, (3, 1)), turn(1, (2, 1), (3, 2))]
    for batch in (units_of(turns, 3), pickle.loads(pickle.dumps(units_of(turns, 3)))):  # noqa: S301
        assert [item.num_stale for item in batch] == [0, 4, 4, 3, 2]
        stale_BT = ReplyBatch(batch, PaddedSequences(batch, CPU, None), CPU).stale_BT
        assert stale_BT.sum(dim=1).tolist() == [0, 4, 4, 3, 2]
        assert stale_BT[4].tolist() == [True, True, False, False]
    assert not any(item.num_stale for item in units_of(turns))


def test_the_first_mismatch_is_measured_on_tokens_of_the_current_version() -> None:
    items = list(units_of([turn(3), turn(2), turn(2, (3, 1))], 3))
    found = [np.full(4, 0.5), np.full(4, 9.0), np.array([9.0, 9.0, 9.0, 1.0])]
    logprobs = {id(item): one for item, one in zip(items, found, strict=True)}
    assert mean_mismatch(items, logprobs) == pytest.approx((4 * 0.5 + 1.0) / 5)
    assert mean_mismatch([], {}) == 0.0
