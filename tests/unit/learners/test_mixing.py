"""The team's value never falls when a role's rises; without abs() it would."""

# ruff: noqa: N803, N806

import pytest

torch = pytest.importorskip("torch")

from pettingllms.learners.mixing import MonotonicMixer, SumMixer, make_mixer

SHAPE = J, R, H = 40, 3, 8


def drawn(seed: int) -> tuple[MonotonicMixer, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A mixer whose weights are all random, and joints for it."""
    torch.manual_seed(seed)
    mixer = MonotonicMixer(R, H, width=5).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    value_JR, state_JH = torch.randn(J, R).double(), torch.randn(J, H).double()
    spoke_JR = torch.rand(J, R) < 0.8
    return mixer, value_JR, spoke_JR, state_JH


def slopes(mixer, value_JR, spoke_JR, state_JH) -> torch.Tensor:
    value_JR = value_JR.clone().requires_grad_()
    mixer(value_JR, spoke_JR, state_JH).sum().backward()
    return value_JR.grad


def differences(mixer, value_JR, spoke_JR, state_JH, by: float) -> torch.Tensor:
    before_J = mixer(value_JR, spoke_JR, state_JH)
    moved = []
    for role in range(R):
        raised_JR = value_JR.clone()
        raised_JR[:, role] += by
        moved.append(mixer(raised_JR, spoke_JR, state_JH) - before_J)
    return torch.stack(moved, 1).detach()


@pytest.mark.parametrize("seed", range(10))
def test_the_mix_is_monotonic_in_every_role(seed: int) -> None:
    inputs = drawn(seed)
    assert slopes(*inputs).min() >= 0
    for by in (1e-4, 1.0, 30.0):
        assert differences(*inputs, by).min() >= 0
    assert slopes(*inputs)[inputs[2]].min() > 0
    near = differences(*inputs, 1e-6) / 1e-6
    torch.testing.assert_close(near, slopes(*inputs), atol=1e-4, rtol=1e-3)


def test_without_abs_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "abs", lambda self: self)
    inputs = drawn(0)
    assert slopes(*inputs).min() < 0
    assert differences(*inputs, 1.0).min() < 0


@pytest.mark.parametrize("kind", ["sum", "monotonic"])
def test_a_role_that_did_not_speak_has_no_part(kind: str) -> None:
    torch.manual_seed(0)
    mixer = make_mixer(kind, R, H)
    spoke_JR = torch.tensor([[True, False, True]])
    state_JH = torch.randn(1, H)
    one, two = torch.tensor([[1.0, 5.0, 2.0]]), torch.tensor([[1.0, torch.nan, 2.0]])
    assert torch.equal(mixer(one, spoke_JR, state_JH), mixer(two, spoke_JR, state_JH))
    assert not mixer(one, ~spoke_JR, state_JH).equal(mixer(one, spoke_JR, state_JH))


def test_the_sum_is_a_sum() -> None:
    spoke_JR = torch.tensor([[True, True, False]])
    assert SumMixer()(torch.tensor([[1.0, 2.5, 9.0]]), spoke_JR, torch.zeros(1, H)).item() == 3.5


def test_values_of_zero_mix_to_zero_at_first() -> None:
    mixer = MonotonicMixer(R, H)
    mixed_J = mixer(torch.zeros(J, R), torch.ones(J, R, dtype=torch.bool), torch.randn(J, H))
    assert mixed_J.tolist() == [0.0] * J


def test_the_mix_by_hand() -> None:
    """One role, width 1, a state whose normal form is (-1, 1): weights |1 x -1 + 3| = 2 and
    |-4| = 4, biases 0.5 and -1. Of a value v: 4 elu(2 v + 0.5) - 1."""
    mixer = MonotonicMixer(1, 2, width=1).double()
    with torch.no_grad():
        for linear, weight, bias in (
            (mixer.first, [1.0, 0.0], 3.0),
            (mixer.first_bias, [0.0, 0.0], 0.5),
            (mixer.second, [0.0, 0.0], -4.0),
        ):
            linear.weight.copy_(torch.tensor([weight]))
            linear.bias.fill_(bias)
        mixer.second_bias[-1].bias.fill_(-1.0)
    spoke_JR, state_JH = torch.ones(2, 1, dtype=torch.bool), torch.tensor([[-7.0, 7.0]] * 2)
    mixed_J = mixer(torch.tensor([[1.0], [-1.0]]).double(), spoke_JR, state_JH.double())
    expected = [4 * 2.5 - 1, 4 * (torch.tensor(-1.5).exp().item() - 1) - 1]
    assert mixed_J.tolist() == pytest.approx(expected, rel=1e-5)
