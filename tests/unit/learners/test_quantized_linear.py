"""Frozen bases in 8 and 4 bits: bytes, gradients against the same base in floats, ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import note, noted, rank_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.policy_model import load_lm
from pettingllms.learners.quantized_linear import BLOCK, NF4, QuantizedLinear, quantize_layers

LORA = {"a": LoraPolicy(model="m", rank=4, lr=1e-2), "b": LoraPolicy(model="m", rank=8, lr=1e-2)}
MAX_SHARE = {8: 0.55, 4: 0.32}
"""Bytes of a quantized layer relative to bfloat16."""
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Biases, rows that are no whole number of blocks, and rows that two ranks share unevenly."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=101, hidden_size=96, intermediate_size=131, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=False,
    )  # fmt: skip
    made = Qwen2ForCausalLM(config)
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    folder = tmp_path_factory.mktemp("model")
    made.save_pretrained(folder)
    return folder


def learner(folder: Path, bits: int | None, policies: Any = LORA, **config: Any) -> Learner:
    made = LearnerConfig(base_bits=bits, **config)
    return Learner(LearnerSpec(folder, policies, made, loss_config(), 16, 5))


def items() -> list[Item]:
    rng = np.random.default_rng(1)
    return [
        Item(*(rng.integers(5, 60, 9).astype(np.int32) for _ in "pr"), -np.ones(9, np.float32), a)
        for a in (1.0, -0.5, 0.25, -1.5)
    ]


def quantized(bits: int, rows: int = 5, columns: int = 100) -> tuple[Any, Tensor]:
    """A quantized layer, and the weight that it was made of."""
    torch.manual_seed(1)
    lm = nn.Module()
    linear = nn.Linear(columns, rows)
    weight = linear.weight.detach().clone()
    lm.layers = nn.ModuleList([nn.Sequential(linear)])
    lm.get_decoder = lambda: lm
    quantize_layers(lm, bits)
    return linear, weight


def dequantized(folder: Path, bits: int, target: Path) -> Path:
    """A copy of a model with the numbers that its quantized weights stand for."""
    lm = load_lm(folder, torch.float32)
    quantize_layers(lm, bits)
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    tensors = load_file(folder / WEIGHTS)
    for name, module in lm.named_modules():
        if isinstance(module, QuantizedLinear):
            assert not torch.equal(tensors[f"{name}.weight"], module.numbers(torch.float32))
            tensors[f"{name}.weight"] = module.numbers(torch.float32).contiguous()
    save_file(tensors, target / WEIGHTS, {"format": "pt"})
    return target


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_are_the_nearest_levels(bits: int) -> None:
    layer, weight = quantized(bits)
    levels = torch.tensor(NF4) if bits == 4 else torch.arange(-127, 128) / 127
    for start in range(0, weight.shape[1], BLOCK):
        block = weight[:, start : start + BLOCK]
        largest = block.abs().amax(1, keepdim=True)
        nearest = (block / largest)[..., None].sub(levels).abs().amin(-1) * largest
        error = (layer.numbers(torch.float32)[:, start : start + BLOCK] - block).abs()
        assert torch.all(error <= nearest + largest / 127)  # the scale is in bfloat16
        assert error.max() > 0


@pytest.mark.parametrize("bits", [8, 4])
def test_product_and_its_gradient_equal_those_of_the_numbers(bits: int) -> None:
    layer, _ = quantized(bits)
    x = torch.randn(2, 3, 100, requires_grad=True)
    y = layer(x)
    y.sin().sum().backward()
    plain = x.detach().clone().requires_grad_()
    weight = layer.numbers(torch.float32)
    nn.functional.linear(plain, weight, layer.bias).sin().sum().backward()
    assert torch.allclose(x.grad, plain.grad, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        low = layer(x)
    assert low.dtype == torch.bfloat16
    assert torch.allclose(low.float(), y, atol=0.03)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(x)
    assert saved
    assert all(t.shape != weight.shape for t in saved)  # the numbers are not kept


def test_rows_of_zeros_stay_zero() -> None:
    for bits in (8, 4):
        layer, _ = quantized(bits)
        layer.fill(lambda _start, out: out.zero_())
        assert not layer.numbers(torch.float32).any()


@pytest.mark.parametrize("bits", [8, 4])
def test_linear_layers_take_few_bytes(bits: int) -> None:
    layer, weight = quantized(bits, 64, 1024)
    held = sum(t.numel() * t.element_size() for t in (layer.weight, layer.scale))
    assert held <= MAX_SHARE[bits] * 2 * weight.numel()
    kept = {*layer.state_dict()} - {"bias"}
    assert kept == {"weight", "scale"}  # and nothing else


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # by Dynamo
@pytest.mark.filterwarnings("ignore:.*Function'> should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_checkpointing": True},
        pytest.param({"compile": True}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("bits", [8, 4])
def test_learner_has_the_gradient_of_the_same_base_in_floats(
    model: Path, tmp_path: Path, bits: int, options: dict[str, Any]
) -> None:
    made = learner(model, bits, **options)
    plain = learner(dequantized(model, bits, tmp_path / "plain"), None)
    other = learner(model, None)
    for one in (made, plain, other):
        one.train("a", items(), 1)  # else half of the gradient is zero
    expected = plain.gradient("a", items())
    found = made.gradient("a", items())
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    assert np.abs(other.gradient("a", items()) - expected).max() > 1e-3 * np.abs(expected).max()
    kinds = {p.dtype for n, p in made._model.named_parameters() if ".lora_" in n}
    assert kinds == {torch.float32}


def rank(number: int, num_ranks: int, model: Path, folder: Path, bits: int) -> None:
    with rank_of(number, num_ranks, folder):
        made = learner(model, bits)
        layers = [m for m in made._model.modules() if isinstance(m, QuantizedLinear)]
        assert len(layers) == 14
        local = [getattr(m.weight, "to_local", lambda m=m: m.weight)() for m in layers]
        assert {t.dtype for t in local} == {torch.int8 if bits == 8 else torch.uint8}
        trained = made.train("a", items(), 1)
        found = {
            "gradient": made.gradient("a", items()).tolist(),
            "loss": trained["loss"],
            "logprobs": [row.tolist() for row in made.logprobs("b", items())],
            "bytes": sum(t.numel() for t in local),
        }
        note(found, number, num_ranks, folder)


@pytest.mark.parametrize("bits", [8, 4])
def test_two_ranks_hold_half_and_compute_the_same(model: Path, tmp_path: Path, bits: int) -> None:
    rank(0, 1, model, tmp_path, bits)
    mp.spawn(rank, args=(2, model, tmp_path, bits), nprocs=2)
    one, two = noted(1, tmp_path), noted(2, tmp_path)
    assert two["gradient"] == pytest.approx(one["gradient"], rel=1e-4, abs=1e-7)
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    for row, expected in zip(two["logprobs"], one["logprobs"], strict=True):
        assert row == pytest.approx(expected, abs=1e-5)
    assert two["bytes"] <= 0.52 * one["bytes"]


def test_one_rank_never_holds_the_weights_in_floats(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are quantized as they are read, not after the model was loaded."""

    def loaded(*_: Any) -> None:
        raise AssertionError("the whole model was loaded")

    monkeypatch.setattr("pettingllms.learners.sharded_load.load_lm", loaded)
    made = learner(model, 8)
    assert not [n for n, p in made._model.named_parameters() if p.is_meta]


def test_a_trained_base_and_experts_are_rejected(model: Path, tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match=r'policies\.f \(kind = "full"\).* set kind = "lora"'):
        learner(model, 8, {"f": FullPolicy(model="m")})
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=101, hidden_size=32, intermediate_size=48, moe_intermediate_size=24,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(LearnerError, match=r"models with experts; leave learner\.base_bits out"):
        learner(tmp_path, 4)
