"""Compiled layers: the same gradients as without, for each adapter, and attention in bfloat16."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import note, noted, rank_of
from test_learner import KINDS, batch, learner

from pettingllms.errors import LearnerError
from pettingllms.learners import compiled
from pettingllms.learners.compiled import bfloat16_attention, compile_layers
from pettingllms.learners.policy_model import decoder_layers, load_lm
from pettingllms.learners.tree_attention import float32_attention
from pettingllms.models import make_tiny

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
]
"""Both come from PyTorch's compiler."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def compare(rank: int, num_ranks: int, folder: Path) -> None:
    """Compare the gradient of a batch with and without compiled, checkpointed layers."""
    with rank_of(rank, num_ranks, folder):
        policy = next(iter(KINDS["lora"]))
        plain = learner(folder / "tiny", KINDS["lora"])
        options = {"compile": True, "activation_checkpointing": True}
        made = learner(folder / "tiny", KINDS["lora"], **options)
        items = batch(plain, policy)
        for one in (plain, made):
            one.train(policy, items, 1)  # B of an adapter starts at zero, and hides the rest
        expected, same = (torch.from_numpy(one.gradient(policy, items)) for one in (plain, made))
        note(float(torch.norm(same - expected) / torch.norm(expected)), rank, num_ranks, folder)


@pytest.mark.slow  # compiles for minutes
def test_compiled_layers_of_two_ranks_have_the_same_gradients(model: Path) -> None:
    mp.spawn(compare, args=(2, model.parent), nprocs=2)
    assert noted(2, model.parent) < 1e-5


@pytest.mark.slow  # compiles
@pytest.mark.parametrize(("num_heads", "num_groups"), [(4, 4), (6, 2)])
def test_attention_in_bfloat16_is_that_in_float32(num_heads: int, num_groups: int) -> None:
    torch.manual_seed(0)
    query = torch.randn(3, num_heads, 5, 16, requires_grad=True)
    key, value = (torch.randn(3, num_groups, 9, 16, requires_grad=True) for _ in range(2))
    mask = torch.where(torch.arange(9) <= torch.arange(4, 9)[:, None], 0.0, -torch.inf)
    mask = mask.expand(3, 1, 5, 9)
    found = []
    for attend in (float32_attention, bfloat16_attention):
        out = attend(query, key, value, mask, 0.25)
        grads = torch.autograd.grad(out.float().pow(2).sum(), (query, key, value))
        found.append([out.float(), *grads])
    for exact, close in zip(*found, strict=True):
        assert torch.norm(close - exact) / torch.norm(exact) < 0.02


def test_many_scores_take_the_kernel_that_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = torch.randn(1, 2, 8, 4), torch.randn(1, 2, 8, 4)
    mask = torch.zeros(1, 1, 8, 8)
    monkeypatch.setattr(compiled, "MAX_SCORES", 2 * 64 - 1)
    monkeypatch.setattr(compiled, "_compiled", None)
    out = bfloat16_attention(query, key, key, mask, 0.5)
    assert torch.equal(out, float32_attention(query, key, key, mask, 0.5))


def test_small_models_and_float32_are_not_compiled(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device("cpu")
    for dtype, least, expected in (
        (torch.bfloat16, compiled.MIN_PARAMETERS, False),
        (torch.float32, 1, False),
        (torch.bfloat16, 1, True),
    ):
        monkeypatch.setattr(compiled, "MIN_PARAMETERS", least)
        lm = load_lm(model, dtype)
        attend = compile_layers(lm, None, device, dtype)
        assert (attend is bfloat16_attention) == expected
        wrapped = ["forward" in vars(layer) for layer in decoder_layers(lm)]
        assert wrapped == [expected] * len(wrapped)


def test_without_a_compiler_the_setting_is_rejected(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "has_compiler", lambda: False)
    with pytest.raises(LearnerError, match="needs a C\\+\\+ compiler"):
        compile_layers(load_lm(model, torch.float32), True, torch.device("cpu"), torch.float32)
