"""DPO's loss against a case worked out by hand, the published formula, and how it is cut."""

# ruff: noqa: N806 - shapes are in capitals
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners.batches import Item, Pair, replies_of
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.losses.base import LossInputs
from pettingllms.learners.losses.policy_loss import Scale, policy_loss
from pettingllms.learners.packing import pack_rows
from pettingllms.models import make_tiny

DPO = loss_config("dpo", beta=0.5)
LORA = {"a": LoraPolicy(model="m", rank=4, lr=1e-2), "b": LoraPolicy(model="m", rank=4, lr=1e-2)}
FULL = {"a": FullPolicy(model="m", lr=1e-3)}
KINDS = {"lora": LORA, "full": FULL}


def inputs(logp: list[list[float]], ref: list[list[float]], mask: list[list[int]]) -> LossInputs:
    logp_BT = torch.tensor(logp, dtype=torch.float64).requires_grad_()
    return LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=torch.zeros_like(logp_BT),
        advantage_BT=torch.ones(len(logp), 1, dtype=torch.float64),
        mask_BT=torch.tensor(mask, dtype=torch.bool),
        ref_logp_BT=torch.tensor(ref, dtype=torch.float64),
    )


def test_loss_and_gradient_of_a_pair_by_hand() -> None:
    """The chosen reply became e^0.6 times likelier, the rejected one e^0.2 times less likely."""
    given = inputs([[-1.0, -0.4], [-1.2, 7.0]], [[-1.5, -0.5], [-1.0, 9.0]], [[1, 1], [1, 0]])
    loss, metrics = policy_loss(given, Scale(3, 2, 8), DPO)
    odds = 0.5 * (0.6 - -0.2)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-odds)))
    torch.autograd.backward(loss)
    pull = 0.5 / (1 + math.exp(odds))
    assert given.logp_BT.grad is not None
    wanted = [[-pull, -pull], [pull, 0.0]]
    assert given.logp_BT.grad.tolist() == [pytest.approx(row) for row in wanted]
    assert float(metrics["margin"]) / 2 == pytest.approx(odds)
    assert float(metrics["preferred"]) == float(metrics["replies"]) == 2


def test_a_long_pair_counts_as_one_pair(model: Path) -> None:
    """One pair of nine tokens a reply got it wrong, three of one token right."""
    made = learner(model, LORA)
    pairs = []
    for length, margin in ((9, -1.0), (1, 1.0), (1, 1.0), (1, 1.0)):
        both = [np.arange(5 + at, 5 + at + length, dtype=np.int32) for at in range(2)]
        items = [
            Item(np.arange(5, 9, dtype=np.int32), r, np.zeros(length, np.float32), 1.0)
            for r in both
        ]
        known = made.logprobs("a", items)
        refs = [known[0] - margin / length, known[1]]
        pairs.append(Pair(*(replace(i, reference=r) for i, r in zip(items, refs, strict=True))))
    numbers = made.train("a", pairs, 1)
    assert numbers["preferred"] == pytest.approx(0.75)
    assert numbers["margin"] == pytest.approx(made._spec.loss.beta * 0.5, abs=1e-3)


def published(logp: torch.Tensor, ref: torch.Tensor, mask: torch.Tensor, beta: float):
    """The loss as TRL has it: log-ratios of chosen and rejected replies, each summed over tokens,
    and the mean over pairs; chosen replies are the first half of a batch there."""
    summed, ref_summed = (torch.where(mask, x, 0).sum(-1) for x in (logp, ref))
    chosen, rejected = (summed - ref_summed).chunk(2)
    return -torch.nn.functional.logsigmoid(beta * (chosen - rejected)).mean()


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradient_are_the_published_ones(seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    B, T = 8, 6
    logp, ref = (-torch.rand(B, T, generator=chance, dtype=torch.float64) * 4 for _ in range(2))
    mask = torch.arange(T)[None] < torch.randint(1, T + 1, (B, 1), generator=chance)
    ours = inputs(logp.tolist(), ref.tolist(), mask.int().tolist())
    loss, _ = policy_loss(ours, Scale(int(mask.sum()), B, 8), DPO)
    torch.autograd.backward(loss)
    halves = torch.tensor([*range(0, B, 2), *range(1, B, 2)])
    theirs = logp[halves].clone().requires_grad_()
    wanted = published(theirs, ref[halves], mask[halves], DPO.beta)
    torch.autograd.backward(wanted)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-12)
    assert ours.logp_BT.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.logp_BT.grad[halves], theirs.grad, atol=1e-12, rtol=0)


def test_a_rank_without_pairs_adds_nothing_and_goes_through_the_motions() -> None:
    given = inputs([[-1.0]], [[math.nan]], [[0]])
    loss, _ = policy_loss(given, Scale(6, 2, 8), DPO)
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert given.logp_BT.grad is not None
    assert given.logp_BT.grad.tolist() == [[0.0]]


def test_a_rejected_token_may_fall_as_far_as_it_likes() -> None:
    """In float32, where the reference is exp(92) times likelier, which is infinite."""
    logp_BT = torch.tensor([[-1.0, -0.4], [-1.0, -95.0]], requires_grad=True)
    given = LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=torch.zeros(2, 2),
        advantage_BT=torch.ones(2, 1),
        mask_BT=torch.ones(2, 2, dtype=torch.bool),
        ref_logp_BT=torch.tensor([[-1.0, -0.4], [-1.0, -3.0]]),
    )
    loss, _ = policy_loss(given, Scale(4, 2, 8), loss_config("dpo", beta=0.01))
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-0.92)))
    assert logp_BT.grad is not None
    pull = 0.01 / (1 + math.exp(0.92))
    wanted = [[-pull, -pull], [pull, pull]]
    assert logp_BT.grad.tolist() == [pytest.approx(row) for row in wanted]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def learner(model: Path, policies: dict, **config: object) -> Learner:
    return Learner(LearnerSpec(model, policies, LearnerConfig(**config), DPO, 16, 5))


def drawn_pairs(made: Learner, policy: str, count: int = 5) -> list[Pair]:
    """Pairs of random replies, with the log-probs that the learner gives them."""
    rng = np.random.default_rng(0)

    def ids() -> np.ndarray:
        return rng.integers(5, 60, rng.integers(2, 12)).astype(np.int32)

    pairs = []
    for _ in range(count):
        prompt, chosen, rejected = ids(), ids(), ids()
        items = [Item(prompt, r, np.zeros(len(r), np.float32), 1.0) for r in (chosen, rejected)]
        rows = made.logprobs(policy, items)
        known = (replace(i, reference=row) for i, row in zip(items, rows, strict=True))
        pairs.append(Pair(*known))
    return pairs


def test_passes_never_part_a_pair_and_stay_within_their_tokens(model: Path) -> None:
    made = learner(model, FULL)
    pairs = drawn_pairs(made, "a", 9)
    for num_ranks in (1, 2):
        passes = [p for rank in pack_rows(pairs, 60, num_ranks) for p in rank]
        assert sorted(id(pair) for one in passes for pair in one) == sorted(map(id, pairs))
        for one in filter(None, passes):
            items = replies_of(one)
            assert [id(i) for i in items[::2]] == [id(pair.chosen) for pair in one]
            assert len(items) * max(i.num_tokens for i in items) <= max(60, one[0].num_tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_at_log_two_and_how_a_batch_is_cut_changes_nothing(
    model: Path, kind: str
) -> None:
    found = []
    for max_batch_tokens in (16, 10_000):
        made = learner(model, KINDS[kind], max_batch_tokens=max_batch_tokens)
        pairs = drawn_pairs(made, "a")
        first, second = (made.train("a", pairs, step) for step in (1, 2))
        assert first["loss"] == pytest.approx(math.log(2), abs=1e-5)
        assert first["margin"] == pytest.approx(0, abs=1e-4)
        found.append((first["grad_norm"], second["loss"]))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_what_is_preferred_and_moves_no_other_policy(model: Path, kind: str) -> None:
    made = learner(model, KINDS[kind])
    others = {name: made.files(name)[1] for name in KINDS[kind] if name != "a"}
    pairs = drawn_pairs(made, "a")
    numbers = [made.train("a", pairs, step) for step in range(1, 21)]
    assert numbers[-1]["loss"] < 0.1
    assert numbers[-1]["preferred"] == 1
    rows = made.logprobs("a", replies_of(pairs))
    gains = [r.sum() - i.reference.sum() for r, i in zip(rows, replies_of(pairs), strict=True)]
    assert all(chosen > rejected for chosen, rejected in zip(gains[::2], gains[1::2], strict=True))
    assert {name: made.files(name)[1] for name in others} == others


def test_a_pair_without_a_reference_moves_nothing(model: Path) -> None:
    made = learner(model, FULL)
    before = made.files("a")[1]
    pairs = drawn_pairs(made, "a")
    bare = [Pair(replace(p.chosen, reference=None), p.rejected) for p in pairs]
    assert made.train("a", bare, 1)["skipped_updates"] == 1
    assert made.files("a")[1] == before
