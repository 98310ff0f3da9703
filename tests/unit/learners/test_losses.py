"""Losses against numbers worked out by hand, the published formulas, and what must always hold."""

# ruff: noqa: N803, N806 - shapes are in capitals
import math
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from pettingllms.config import LossConfig, loss_config
from pettingllms.errors import LearnerError
from pettingllms.learners.losses.base import LossInputs
from pettingllms.learners.losses.policy_loss import Scale, k3, policy_loss
from pettingllms.registry import LOSSES

near = pytest.approx
WIDE = {"clip_low": 0.2, "clip_high": 0.28}
PLAIN = loss_config()
SCALES = ["token", "sequence", "constant"]
ALL_ON = {"kl_coef": 0.3, "entropy_coef": 0.2}
MAX_REPLY_TOKENS = 10

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=5)
seeds = st.integers(0, 2**32)


def one(advantage: float, ratio: float, weight: float = 1.0) -> LossInputs:
    """One reply of one token."""
    old_logp = torch.tensor([[-2.0]], dtype=torch.float64)
    return LossInputs(
        logp_BT=(old_logp + math.log(ratio)).requires_grad_(),
        old_logp_BT=old_logp,
        sampler_logp_BT=old_logp - math.log(weight),
        advantage_BT=torch.tensor([[advantage]], dtype=torch.float64),
        mask_BT=torch.tensor([[True]]),
    )


def drawn(sizes: list[int], seed: int, spread: float = 0.6) -> LossInputs:
    """Replies of those lengths in which every branch of the clip is likely to be met."""
    chance = torch.Generator().manual_seed(seed)
    B, T = len(sizes), max(sizes)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance, dtype=torch.float64)

    old_logp_BT = -noise(B, T).abs()
    return LossInputs(
        logp_BT=(old_logp_BT + spread * noise(B, T)).requires_grad_(),
        old_logp_BT=old_logp_BT,
        sampler_logp_BT=old_logp_BT + spread * noise(B, T),
        advantage_BT=noise(B, 1),
        mask_BT=torch.arange(T)[None, :] < torch.tensor(sizes)[:, None],
        entropy_BT=noise(B, T).abs().requires_grad_(),
        ref_logp_BT=old_logp_BT + spread * noise(B, T),
    )


def scale_of(inputs: LossInputs) -> Scale:
    B, _ = inputs.mask_BT.shape
    return Scale(int(inputs.mask_BT.sum()), B, MAX_REPLY_TOKENS)


def run(inputs: LossInputs, config: LossConfig = PLAIN, scale: Scale | None = None) -> Any:
    """The loss, its gradient by the log-probs, and the metrics, as plain numbers."""
    loss, metrics = policy_loss(inputs, scale or scale_of(inputs), config)
    (grad_BT,) = torch.autograd.grad(loss, inputs.logp_BT)
    return loss.item(), grad_BT, {name: value.item() for name, value in metrics.items()}


ALONE = [name for name in LOSSES.names() if name != "dpo"]
"""Losses of single replies; test_dpo_loss.py has the rest of what pairs must hold."""
RATIOS = [name for name in ALONE if name != "plain"]
"""Losses that weigh by a ratio."""


def wide(name: str, **options: Any) -> LossConfig:
    """The loss, with wide bounds if it has any."""
    return loss_config(name, **{**(WIDE if name in RATIOS else {}), **options})


def test_plain_is_the_likelihood_weighted_by_advantages_whatever_the_ratio() -> None:
    for ratio in (0.5, 1.0, 5.0):
        inputs = one(2.0, ratio)
        loss, slope, metrics = run(inputs, loss_config("plain"))
        assert loss == near(-2.0 * inputs.logp_BT.item())
        assert slope.item() == near(-2.0)
        assert "clipped" not in metrics


# One token. Bounds are 0.8 and 1.28, the dual clip is 3.


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope", "clipped", "dual_clipped"),
    [
        (2, 0.5, -1.0, -1.0, 0, 0),
        (2, 1.1, -2.2, -2.2, 0, 0),
        (2, 2.0, -2.56, 0.0, 1, 0),
        (2, 5.0, -2.56, 0.0, 1, 0),
        (-2, 0.5, 1.6, 0.0, 1, 0),
        (-2, 1.1, 2.2, 2.2, 0, 0),
        (-2, 2.0, 4.0, 4.0, 0, 0),
        (-2, 5.0, 6.0, 0.0, 0, 1),
        (0, 0.5, 0.0, 0.0, 0, 0),
        (0, 5.0, 0.0, 0.0, 0, 0),
    ],
)
@pytest.mark.parametrize("name", RATIOS)
def test_every_branch_of_the_clip(
    name: str, advantage, ratio, loss, slope, clipped, dual_clipped
) -> None:
    found, grad, metrics = run(one(advantage, ratio), wide(name))
    assert found == near(loss)
    assert grad.item() == near(slope)
    assert (metrics["clipped"], metrics["dual_clipped"]) == (clipped, dual_clipped)


def test_each_bound_moves_only_what_it_bounds() -> None:
    ratios = [0.3, 0.7, 1.0, 1.2, 2.0, 7.0]

    def losses(advantage: float, **options: float) -> list[float]:
        return [run(one(advantage, ratio), loss_config(**options))[0] for ratio in ratios]

    assert losses(-1.0, clip_high=0.1) == losses(-1.0)
    assert losses(1.0, clip_high=0.1) != losses(1.0)
    assert losses(1.0, clip_low=0.5) == losses(1.0)
    assert losses(-1.0, clip_low=0.5) != losses(-1.0)
    assert losses(1.0, dual_clip=1.5) == losses(1.0)
    assert losses(-1.0, dual_clip=1.5) != losses(-1.0)


@pytest.mark.parametrize("bounds", [{}, {"clip_low": 0.0, "clip_high": 0.0, "dual_clip": 1.0}])
@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", ALONE)
def test_at_ratio_1_the_gradient_is_reinforce(name: str, normalize: Any, bounds: Any) -> None:
    inputs = drawn([3, 1, 4], seed=1)
    logp_BT = inputs.old_logp_BT.clone().requires_grad_()
    inputs = replace(inputs, logp_BT=logp_BT, sampler_logp_BT=inputs.old_logp_BT)
    _, grad_BT, _ = run(
        inputs, wide(name, normalize=normalize, **(bounds if name in RATIOS else {}))
    )
    per_token = {
        "token": torch.full((3, 1), 1 / 8),
        "sequence": 1 / 3 / torch.tensor([[3.0], [1.0], [4.0]]),
        "constant": torch.full((3, 1), 1 / (3 * MAX_REPLY_TOKENS)),
    }[normalize]
    expected_BT = -inputs.advantage_BT * inputs.mask_BT * per_token
    torch.testing.assert_close(grad_BT, expected_BT.double(), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [200.0, -200.0])
@pytest.mark.parametrize("name", RATIOS)
def test_ratios_that_overflow_have_no_gradient(name: str, log_ratio: float, advantage) -> None:
    """In float32, where exp(200) is infinite."""
    inputs = LossInputs(
        logp_BT=torch.tensor([[-1.0]], requires_grad=True),
        old_logp_BT=torch.tensor([[-1.0 - log_ratio]]),
        sampler_logp_BT=torch.tensor([[-1.0 - 2 * log_ratio]]),
        advantage_BT=torch.tensor([[advantage]]),
        mask_BT=torch.tensor([[True]]),
    )
    loss, grad, _ = run(inputs, wide(name))
    assert math.isfinite(loss)
    assert grad.item() == 0


# Importance weights


def test_the_importance_weight_is_capped() -> None:
    assert run(one(1.0, 1.0, weight=0.25))[0] == near(-0.25)
    assert run(one(1.0, 1.0, weight=1.5))[0] == near(-1.5)
    assert run(one(1.0, 1.0, weight=7.0))[0] == near(-2.0)
    assert run(one(1.0, 1.0, weight=7.0), loss_config(max_importance_weight=5.0))[0] == near(-5.0)
    _, grad, metrics = run(one(-3.0, 1.1, weight=7.0))
    assert grad.item() == near(2 * 3 * 1.1)
    assert (metrics["weight"], metrics["weight_capped"]) == (near(2), 1)
    assert metrics["mismatch"] == metrics["max_mismatch"] == near(math.log(7))


@pytest.mark.parametrize("name", LOSSES.names())
def test_only_outputs_of_the_trained_policy_have_a_gradient(name: str) -> None:
    inputs = drawn([2, 3], seed=2)
    constants = [
        inputs.old_logp_BT,
        inputs.sampler_logp_BT,
        inputs.advantage_BT,
        inputs.ref_logp_BT,
    ]
    for constant in constants:
        constant.requires_grad_()
    loss, metrics = policy_loss(inputs, scale_of(inputs), wide(name, **ALL_ON))
    loss.backward()
    assert [constant.grad for constant in constants] == [None] * 4
    assert inputs.logp_BT.grad.abs().sum() > 0
    assert inputs.entropy_BT.grad.abs().sum() > 0
    assert not any(value.requires_grad or value.dim() for value in metrics.values())


# Normalisation, entropy, divergence


def reply_pair() -> LossInputs:
    """Replies of one and of three tokens; at ratio 1 each token's loss is -A."""
    logp_BT = torch.full((2, 3), -1.0, dtype=torch.float64, requires_grad=True)
    return LossInputs(
        logp_BT=logp_BT,
        old_logp_BT=logp_BT.detach(),
        sampler_logp_BT=logp_BT.detach(),
        advantage_BT=torch.tensor([[4.0], [-1.0]], dtype=torch.float64),
        mask_BT=torch.tensor([[True, False, False], [True, True, True]]),
    )


@pytest.mark.parametrize("name", RATIOS)
def test_normalisations(name: str) -> None:
    def loss(normalize: Any, scale: Scale) -> float:
        return run(reply_pair(), wide(name, normalize=normalize), scale)[0]

    whole, part = Scale(4, 2, 10), Scale(40, 8, 5)
    assert loss("token", whole) == near((-4 + 3 * 1) / 4)
    assert loss("sequence", whole) == near((-4 + 1) / 2)
    assert loss("constant", whole) == near((-4 + 3 * 1) / 20)
    assert loss("token", part) == near(-1 / 40)
    assert loss("sequence", part) == near(-3 / 8)
    assert loss("constant", part) == near(-1 / 40)


def test_the_entropy_bonus_lowers_the_loss() -> None:
    entropy_BT = torch.tensor([[1.0, 9.0, 9.0], [2.0, 3.0, 4.0]], dtype=torch.float64)
    inputs = replace(reply_pair(), entropy_BT=entropy_BT.requires_grad_())
    loss, metrics = policy_loss(inputs, Scale(4, 2, 10), loss_config(entropy_coef=0.5))
    assert loss.item() == near(-1 / 4 - 0.5 * (1 + 2 + 3 + 4) / 4)
    assert metrics["entropy"].item() == 10
    loss.backward()
    assert entropy_BT.grad.tolist() == [[-0.125, 0, 0], [-0.125, -0.125, -0.125]]


def test_the_kl_penalty_raises_the_loss() -> None:
    """At half the reference's probability r = 2: k3 = 2 - 1 - log 2, with the slope 1 - r."""
    inputs = replace(one(0.0, 1.0), ref_logp_BT=torch.full((1, 1), -2 + math.log(2)))
    loss, grad, metrics = run(inputs, loss_config(kl_coef=0.5))
    assert metrics["ref_kl"] == near(1 - math.log(2))
    assert loss == near(0.5 * (1 - math.log(2)))
    assert grad.item() == near(0.5 * (1 - 2))


def test_the_importance_weight_is_for_the_advantage_alone() -> None:
    inputs = replace(
        one(0.0, 1.0, weight=0.5),
        ref_logp_BT=torch.full((1, 1), -2 + math.log(2)),
        entropy_BT=torch.ones(1, 1),
    )
    assert run(inputs, loss_config(kl_coef=1, entropy_coef=1))[0] == near((1 - math.log(2)) - 1)


def test_metrics_are_sums_over_the_replies_tokens() -> None:
    inputs = LossInputs(
        logp_BT=torch.tensor([[-1.0, -1.0, 0.0], [-1.0, -2.0, -3.0]], requires_grad=True),
        old_logp_BT=torch.tensor([[-1.5, -1.0, -9.0], [-1.0, -1.0, -1.0]]),
        sampler_logp_BT=torch.tensor([[-1.5, -1.25, 9.0], [-2.0, -1.0, -0.5]]),
        advantage_BT=torch.tensor([[1.0], [-1.0]]),
        mask_BT=torch.tensor([[True, True, False], [True, True, True]]),
    )
    _, _, metrics = run(inputs)
    assert metrics == {
        "clipped": 1 + 2,
        "dual_clipped": 0,
        "kl": near((math.exp(0.5) - 1.5) + math.exp(-1) + (math.exp(-2) + 1)),
        "mismatch": near(0.25 + 1 + 0.5),
        "max_mismatch": near(1),
        "weight": near(1 + math.exp(0.25) + 2 + 1 + math.exp(-0.5)),
        "weight_capped": 1,
        "tokens": 5,
    }


@pytest.mark.parametrize("spread", [1e-8, 1e-6, 1e-4, 1e-2, 1, 20])
def test_k3_is_never_negative(spread: float) -> None:
    log_ratios = spread * torch.linspace(-1, 1, 100_001, dtype=torch.float32)
    assert k3(log_ratios).min() >= 0


# Against the formulas as published


def reference(inputs: LossInputs, scale: Scale, config: LossConfig) -> float:
    """The loss token by token in plain Python, with min and max as in the papers."""
    total = 0.0
    for b, mask in enumerate(inputs.mask_BT.tolist()):
        tokens = [t for t, kept in enumerate(mask) if kept]
        columns = (inputs.logp_BT, inputs.old_logp_BT, inputs.sampler_logp_BT, inputs.ref_logp_BT)
        logp, old, sampler, ref = ([column[b, t].item() for t in tokens] for column in columns)
        ratios = [math.exp(x - y) for x, y in zip(logp, old, strict=True)]
        weights = [math.exp(x - y) for x, y in zip(old, sampler, strict=True)]
        if config.type == "gspo":
            count = len(tokens)
            ratios = [(math.exp(sum(logp)) / math.exp(sum(old))) ** (1 / count)] * count
            weights = [(math.exp(sum(old)) / math.exp(sum(sampler))) ** (1 / count)] * count
        advantage = inputs.advantage_BT[b].item()
        terms = []
        for at, ratio in enumerate(ratios):
            clipped = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
            objective = min(ratio * advantage, clipped * advantage)
            if advantage < 0:
                objective = max(objective, config.dual_clip * advantage)
            r = math.exp(ref[at] - logp[at])
            terms.append(
                -min(weights[at], config.max_importance_weight) * objective
                + config.kl_coef * (r - math.log(r) - 1)
                - config.entropy_coef * inputs.entropy_BT[b, tokens[at]].item()
            )
        total += sum(terms) / (len(terms) if config.normalize == "sequence" else 1)
    return (
        total
        / {
            "token": scale.num_tokens,
            "sequence": scale.num_replies,
            "constant": scale.num_replies * scale.max_reply_tokens,
        }[config.normalize]
    )


@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", RATIOS)
@given(sizes=lengths, seed=seeds)
def test_the_loss_is_the_published_one(name: str, normalize: Any, sizes, seed: int) -> None:
    inputs = drawn(sizes, seed, spread=1.0)
    config = wide(name, normalize=normalize, **ALL_ON)
    assert run(inputs, config)[0] == near(reference(inputs, scale_of(inputs), config))


@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", LOSSES.names())
def test_gradients_are_those_of_the_value(name: str, normalize: Any) -> None:
    inputs = drawn([3, 1, 5, 4], seed=3)
    config = wide(name, normalize=normalize, **ALL_ON)

    def loss(logp_BT: torch.Tensor, entropy_BT: torch.Tensor) -> torch.Tensor:
        given_now = replace(inputs, logp_BT=logp_BT, entropy_BT=entropy_BT)
        return policy_loss(given_now, scale_of(inputs), config)[0]

    assert torch.autograd.gradcheck(loss, (inputs.logp_BT, inputs.entropy_BT))


def test_gspo_moves_all_tokens_of_a_reply_alike() -> None:
    inputs = drawn([4], seed=4, spread=0.05)
    _, grad_BT, _ = run(inputs, loss_config("gspo", normalize="sequence"))
    assert grad_BT.abs().min() > 0
    torch.testing.assert_close(grad_BT, grad_BT[:, :1].expand(1, 4))


# Advantages of tokens


@pytest.mark.parametrize("normalize", SCALES)
def test_a_column_of_advantages_is_the_same_for_every_token(normalize: Any) -> None:
    inputs = drawn([3, 1, 5], seed=7)
    config = loss_config(**WIDE, normalize=normalize)
    spread = replace(inputs, advantage_BT=inputs.advantage_BT.expand(3, 5))
    (loss, grad_BT, metrics), (loss2, grad2_BT, metrics2) = run(inputs, config), run(spread, config)
    assert (loss, metrics) == (loss2, metrics2)
    assert torch.equal(grad_BT, grad2_BT)


def test_each_token_is_pushed_by_its_own_advantage() -> None:
    inputs = replace(
        reply_pair(), advantage_BT=torch.tensor([[4.0, 9.0, 9.0], [1.0, -2.0, 0.0]]).double()
    )
    loss, grad_BT, _ = run(inputs, loss_config(**WIDE, normalize="token"), Scale(4, 2, 10))
    assert loss == near(-(4 + 1 - 2) / 4)
    assert grad_BT.tolist() == [[-1, 0, 0], [-0.25, 0.5, 0]]


def test_gspo_clips_a_reply_by_the_mean_of_its_tokens() -> None:
    """The mean of 3 and -1 is good, and a good reply's ratio of 2 counts as 1.2: no gradient, where
    a token of -1 by itself would have one."""
    old_logp_BT = torch.full((1, 2), -2.0, dtype=torch.float64)
    inputs = LossInputs(
        logp_BT=(old_logp_BT + math.log(2)).requires_grad_(),
        old_logp_BT=old_logp_BT,
        sampler_logp_BT=old_logp_BT,
        advantage_BT=torch.tensor([[3.0, -1.0]], dtype=torch.float64),
        mask_BT=torch.tensor([[True, True]]),
    )
    config = loss_config("gspo", clip_low=0.2, clip_high=0.2, normalize="sequence")
    loss, grad_BT, metrics = run(inputs, config)
    assert loss == near(-1.2)
    assert grad_BT.tolist() == [[0, 0]]
    assert metrics["clipped"] == 2


# What must not matter


def part_of(inputs: LossInputs, rows: list[int]) -> LossInputs:
    """Some of the replies, padded to the longest of them."""
    T = int(inputs.mask_BT[rows].sum(1).max())

    def taken(value: torch.Tensor) -> torch.Tensor:
        return value[rows, :T]

    return LossInputs(
        taken(inputs.logp_BT),
        taken(inputs.old_logp_BT),
        taken(inputs.sampler_logp_BT),
        inputs.advantage_BT[rows],
        taken(inputs.mask_BT),
        taken(inputs.entropy_BT),
        taken(inputs.ref_logp_BT),
    )


@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", ALONE)
@given(sizes=lengths, seed=seeds, places=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_how_a_minibatch_is_cut_does_not_matter(
    name: str, normalize: Any, sizes: list[int], seed: int, places: list[int]
) -> None:
    inputs = drawn(sizes, seed)
    config = wide(name, normalize=normalize, **ALL_ON)
    loss, grad_BT, metrics = run(inputs, config)
    parts = [[b for b, _ in enumerate(sizes) if places[b] == place] for place in range(4)]
    results = [
        policy_loss(part_of(inputs, rows), scale_of(inputs), config) for rows in parts if rows
    ]
    for part_loss, _ in results:
        part_loss.backward()
    assert sum(part_loss.item() for part_loss, _ in results) == near(loss)
    torch.testing.assert_close(inputs.logp_BT.grad, grad_BT)
    merged = {
        key: (max if key == "max_mismatch" else sum)(part[key].item() for _, part in results)
        for key in metrics
    }
    assert merged == near(metrics)


def spoilt(inputs: LossInputs, garbage: float) -> LossInputs:
    def with_garbage(value: torch.Tensor) -> torch.Tensor:
        return torch.where(inputs.mask_BT, value.detach(), garbage).requires_grad_()

    return LossInputs(
        with_garbage(inputs.logp_BT),
        with_garbage(inputs.old_logp_BT),
        with_garbage(inputs.sampler_logp_BT),
        inputs.advantage_BT,
        inputs.mask_BT,
        with_garbage(inputs.entropy_BT),
        with_garbage(inputs.ref_logp_BT),
    )


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", LOSSES.names())
def test_what_stands_outside_the_mask_does_not_matter(name, normalize: Any, garbage) -> None:
    inputs = drawn([3, 1, 5], seed=5)
    config = wide(name, normalize=normalize, **ALL_ON)
    loss, grad_BT, metrics = run(inputs, config)
    dirty = spoilt(inputs, garbage)
    found, found_grad_BT, found_metrics = run(dirty, config)
    assert (found, found_metrics) == (loss, metrics)
    assert torch.equal(found_grad_BT, grad_BT)
    policy_loss(dirty, scale_of(dirty), config)[0].backward()
    assert torch.isfinite(dirty.entropy_BT.grad).all()


@pytest.mark.parametrize("normalize", SCALES)
@pytest.mark.parametrize("name", LOSSES.names())
def test_a_row_of_padding_adds_nothing_but_can_be_differentiated(name, normalize: Any) -> None:
    """A rank that has run out of replies still makes the pass, with a row like this one."""
    inputs = spoilt(replace(drawn([2], 6), mask_BT=torch.zeros(1, 2, dtype=torch.bool)), math.nan)
    inputs = replace(inputs, advantage_BT=torch.tensor([[math.nan]], dtype=torch.float64))
    config = wide(name, normalize=normalize, **ALL_ON)
    for scale in (Scale(8, 2, 5), Scale(0, 0, 0)):
        loss, grad_BT, metrics = run(inputs, config, scale)
        assert loss == 0
        assert grad_BT.tolist() == [[0, 0]]
        assert set(metrics.values()) == {0}


# What is refused


@pytest.mark.parametrize("options", [{"kl_coef": 0.1}, {"entropy_coef": 0.1}])
def test_a_weight_without_its_input_is_a_bug(options: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        run(one(1, 1), loss_config(**options))


@pytest.mark.parametrize("given", [None, torch.zeros(2), (torch.zeros(1, 2), {})])
def test_an_objective_of_the_wrong_shape_is_rejected(given: Any, monkeypatch) -> None:
    monkeypatch.setattr(LOSSES.load("clip"), "objective", lambda *_: given)
    with pytest.raises(LearnerError, match=r"objective\(\) of the loss 'clip' returned"):
        run(one(1, 1))
