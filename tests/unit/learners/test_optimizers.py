"""Optimizers against values computed by hand."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn

from pettingllms.config import LearnerConfig
from pettingllms.learners.optimizers import NamedOptimizer, embeddings_of


def optimizer(parameters: dict[str, Tensor], lr: float = 0.1, **config: object) -> NamedOptimizer:
    return NamedOptimizer([(parameters, lr)], LearnerConfig(**config), frozenset())


def test_betas_and_epsilon_of_adamw_are_those_of_the_config() -> None:
    """Two steps by hand: beta1 = 0.5, beta2 = 0.75, epsilon = 1, gradients 2 and 4."""
    weight = nn.Parameter(torch.zeros(1))
    made = optimizer({"w": weight}, momentum=0.5, beta2=0.75, epsilon=1.0, max_grad_norm=100.0)
    weight.grad = torch.tensor([2.0])
    made.step(1.0)
    first = -0.1 * 2 / (2 + 1)
    assert weight.item() == pytest.approx(first)
    weight.grad = torch.tensor([4.0])
    made.step(0.5)
    mean = (0.5 * (0.5 * 2) + 0.5 * 4) / (1 - 0.5**2)
    squares = (0.75 * (0.25 * 4) + 0.25 * 16) / (1 - 0.75**2)
    assert weight.item() == pytest.approx(first - 0.05 * mean / (squares**0.5 + 1))


def test_clipping_reports_the_norm_from_before() -> None:
    weight = nn.Parameter(torch.zeros(2))
    made = optimizer({"w": weight}, max_grad_norm=1.0)
    weight.grad = torch.tensor([3.0, 4.0])
    assert made.clip() == pytest.approx(5.0)
    assert weight.grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-4)


class Small(nn.Module):
    """Every kind of parameter; the output layer shares the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 2)
        self.norm = nn.LayerNorm(2)
        self.linear = nn.Linear(2, 2)
        self.out = nn.Linear(2, 3, bias=False)
        self.out.weight = self.embed.weight


def test_only_matrices_decay() -> None:
    model = Small()
    named = dict(model.named_parameters())
    for parameter in named.values():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    made = NamedOptimizer([(named, 0.1)], LearnerConfig(weight_decay=0.5), embeddings_of(model))
    made.step(1.0)
    decayed = {name for name, p in named.items() if not torch.equal(p, torch.ones_like(p))}
    assert decayed == {"linear.weight"}
    assert named["linear.weight"][0, 0].item() == pytest.approx(1 - 0.1 * 0.5)


def test_state_is_restored_by_name_whatever_the_groups() -> None:
    """With a weight decay, the optimizer orders parameters by group; without one it does not."""

    def made(weight_decay: float) -> tuple[NamedOptimizer, dict[str, Tensor]]:
        named: dict[str, Tensor] = {
            name: nn.Parameter(torch.zeros(shape))
            for name, shape in (("bias", (2,)), ("matrix", (1, 2)), ("gain", (2,)))
        }
        return optimizer(named, weight_decay=weight_decay), named

    first, parameters = made(0.1)
    for size, parameter in enumerate(parameters.values(), start=1):
        parameter.grad = torch.full_like(parameter, float(size))
    first.step(1.0)
    second, _ = made(0.0)
    second.load_state(first.state())
    assert second.state()["exp_avg.gain"].tolist() == pytest.approx([0.3, 0.3])
    for name, tensor in first.state().items():
        assert torch.equal(second.state()[name], tensor)
