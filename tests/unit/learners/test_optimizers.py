"""Optimizers against values computed by hand."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.multiprocessing as mp
from ranks import note, noted, rank_of
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from pettingllms.config import LearnerConfig, parse_config
from pettingllms.errors import LearnerError
from pettingllms.learners.eight_bit import quantized
from pettingllms.learners.offload import HostState
from pettingllms.learners.optimizers import NamedOptimizer, embeddings_of
from pettingllms.learners.weight_stream import collect
from pettingllms.learners.weights import whole
from pettingllms.preflight import run as preflight

CPU = torch.device("cpu")


def optimizer(parameters: dict[str, Tensor], lr: float = 0.1, **config: object) -> NamedOptimizer:
    return NamedOptimizer([(parameters, lr)], LearnerConfig(**config), frozenset(), CPU)


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
    made = NamedOptimizer(
        [(named, 0.1)], LearnerConfig(weight_decay=0.5), embeddings_of(model), CPU
    )
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


SHAPES = {"matrix": (5, 3), "adapter": (1, 4), "vector": (6,), "experts": (3, 2, 4)}


class Weights(nn.Module):
    """Parameters of every number of dimensions, with gradients that change from step to step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(0.1 * torch.randn(shape)))

    def forward(self, step: int) -> Tensor:
        torch.manual_seed(step)
        factors = {name: (step + 1) * torch.randn(shape) for name, shape in SHAPES.items()}
        return sum((p * factors[n] + p**2).sum() for n, p in self.named_parameters())


def trained(model: Weights, made: NamedOptimizer, steps: range) -> dict[str, list[float]]:
    for step in steps:
        model(step).backward()
        made.step(1.0)
        made.zero_grad()
    found = {n: getattr(p, "full_tensor", lambda p=p: p)() for n, p in model.named_parameters()}
    return {name: tensor.detach().flatten().tolist() for name, tensor in found.items()}


def test_adafactor_is_that_of_torch_with_an_absolute_learning_rate() -> None:
    """With a second epsilon of 1, torch does not scale its steps by weights smaller than 1."""
    ours, theirs = Weights(), Weights()
    made = optimizer(dict(ours.named_parameters()), lr=0.01, optimizer="adafactor")
    oracle = torch.optim.Adafactor(theirs.parameters(), lr=0.01, eps=(None, 1.0))
    found = trained(ours, made, range(5))
    for step in range(5):
        theirs(step).backward()
        oracle.step()
        oracle.zero_grad()
    for name, parameter in theirs.named_parameters():
        assert found[name] == pytest.approx(parameter.detach().flatten().tolist(), rel=1e-4)


def test_the_first_step_of_adafactor_by_hand() -> None:
    """Gradients 3, 4 / 6, 8 have rank one, so their estimate is exact: every weight moves by the
    learning rate. The matrix decays before."""
    weight = nn.Parameter(torch.ones(2, 2))
    made = optimizer({"w": weight}, lr=0.1, optimizer="adafactor", weight_decay=0.5)
    weight.grad = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    made.step(1.0)
    assert weight.flatten().tolist() == pytest.approx([1 - 0.1 * 0.5 - 0.1] * 4)


def sharded(rank: int, num_ranks: int, folder: Path, name: str) -> None:
    """Train, save, load into a fresh optimizer, and train on."""
    with rank_of(rank, num_ranks, folder):
        found = {}
        model = Weights()
        if num_ranks > 1:
            fully_shard(model)
            model.set_gradient_divide_factor(float(num_ranks))
            model.set_force_sum_reduction_for_comms(True)
        named = dict(model.named_parameters())
        first = optimizer(named, lr=0.01, optimizer=name)
        trained(model, first, range(3))
        saved = {key: whole(tensor).clone() for key, tensor in first.state().items()}
        for key, tensor in collect(first.state()).items():  # as a checkpoint is written
            assert torch.equal(tensor, saved[key]), key
        second = optimizer(named, lr=0.01, optimizer=name)
        second.load_state(saved)
        found = trained(model, second, range(3, 5))
        states = {key: tensor.flatten().tolist() for key, tensor in saved.items()}
        note([found, states], rank, num_ranks, folder)


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_two_ranks_train_and_save_as_one_does(name: str, tmp_path: Path) -> None:
    sharded(0, 1, tmp_path, name)
    mp.spawn(sharded, args=(2, tmp_path, name), nprocs=2)
    for one, two in zip(noted(1, tmp_path), noted(2, tmp_path), strict=True):
        assert one.keys() == two.keys()
        for key in one:
            assert two[key] == pytest.approx(one[key], rel=1e-4, abs=1e-7), key


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_state_goes_on_as_if_never_saved(name: str) -> None:
    whole, parted = Weights(), Weights()
    expected = trained(whole, optimizer(dict(whole.named_parameters()), optimizer=name), range(5))
    named = dict(parted.named_parameters())
    first = optimizer(named, optimizer=name)
    trained(parted, first, range(3))
    second = optimizer(named, optimizer=name)
    second.load_state(first.state())
    assert trained(parted, second, range(3, 5)) == expected


def test_state_of_another_optimizer_is_rejected() -> None:
    model = Weights()
    made = optimizer(dict(model.named_parameters()))
    trained(model, made, range(1))
    other = optimizer(dict(model.named_parameters()), optimizer="adafactor")
    with pytest.raises(LearnerError, match="set learner.optimizer"):
        other.load_state(made.state())


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_state_on_the_host_changes_nothing(name: str) -> None:
    """On CPU both copies are in host memory; the storage that the optimizer sees is empty between
    updates."""
    plain, offloaded = Weights(), Weights()
    expected = trained(plain, optimizer(dict(plain.named_parameters()), optimizer=name), range(5))
    made = optimizer(dict(offloaded.named_parameters()), optimizer=name, offload_optimizer=True)
    assert made._host is None, "on CPU nothing is to be gained"
    made._host = HostState(made.optimizer, CPU)

    def held() -> int:
        states = made.optimizer.state.values()
        return sum(t.untyped_storage().nbytes() for state in states for t in state.values())

    trained(offloaded, made, range(2))
    assert held() == 0
    made.load_state(made.state())
    assert held() == 0
    assert made.state()["step.matrix"] == 2
    assert trained(offloaded, made, range(2, 5)) == expected
    assert len(made._host._buffers) == sum(len(s) for s in made.optimizer.state.values())


def test_eight_bits_are_rejected_without_a_gpu_or_torchao(monkeypatch) -> None:
    weight = {"w": nn.Parameter(torch.zeros(2, 2))}
    with pytest.raises(LearnerError, match="runs only on GPUs"):
        optimizer(weight, optimizer="adamw_8bit")
    config = LearnerConfig(optimizer="adamw_8bit")
    monkeypatch.setattr("pettingllms.config.engines.find_spec", lambda _: None)
    assert "needs torchao" in config.optimizer_problem("cuda")
    run = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "m"}},
            "learner": {"optimizer": "adamw_8bit"},
        }
    )
    monkeypatch.setattr(preflight, "find_gpus", list)
    found = [finding.what for finding in preflight._check_engine(run)]
    assert any("adamw_8bit" in what for what in found)


@pytest.mark.parametrize("key", ["momentum", "beta2", "epsilon"])
def test_keys_of_adamw_are_rejected_for_adafactor(key: str) -> None:
    LearnerConfig(optimizer="adafactor")
    with pytest.raises(ValueError, match=f"adafactor has no {key}"):
        LearnerConfig(optimizer="adafactor", **{key: 0.5})


@pytest.mark.parametrize("levels", [[-0.9, -0.25, 0.0, 0.5, 1.0], [0.0, 0.1, 0.5, 1.0]])
def test_numbers_that_were_quantized_keep_their_codes(levels: list[float]) -> None:
    table = torch.tensor(levels)
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(len(levels), (6, 8), generator=generator)
    codes[:, 0] = 0 if levels[0] < 0 else len(levels) - 1  # an end of each block is reached
    scales = torch.tensor([1.0, 0.3, 7.0, 1e-6, 123.0, 0.01])
    floats = table[codes] * scales[:, None]
    found, scale = quantized(floats.reshape(4, 12), table, block_size=8)
    assert found.flatten().tolist() == codes.flatten().tolist()
    torch.testing.assert_close(scale, scales, rtol=1e-6, atol=0)
    zeros, scale = quantized(torch.zeros(2, 4), table, block_size=8)
    assert (table[zeros.long()] * scale).abs().max() == 0
