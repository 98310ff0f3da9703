"""Ranks that read their shards hold what ranks that load the whole model hold, bit for bit."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import rank_of
from safetensors.torch import load_file, save_file

from pettingllms.config import CriticConfig, LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners import critic as critics
from pettingllms.learners import learner as learners
from pettingllms.learners import sharded_load
from pettingllms.learners.batches import Item, JointAction
from pettingllms.learners.critic import Critic, CriticSpec
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.policy_model import load_lm
from pettingllms.models import make_tiny, make_tiny_vision

TEXTS = [f"count {n}" for n in range(50)]
LORA = {"a": LoraPolicy(model="m", rank=4, lr=1e-2), "b": LoraPolicy(model="m", rank=8, lr=1e-2)}
FULL = {"f": FullPolicy(model="m", lr=1e-3)}
WEIGHTS = "model.safetensors"


def qwen3(folder: Path) -> None:
    make_tiny(folder, texts=TEXTS, hidden_size=64)


def llama_of_two_files(folder: Path) -> None:
    """Tied weights, stored in bfloat16 in two files with an index."""
    make_tiny(folder, "llama", texts=TEXTS, hidden_size=64)
    tensors = {n: t.bfloat16() for n, t in load_file(folder / WEIGHTS).items()}
    names = sorted(tensors)
    half = len(names) // 2
    parts = {"one.safetensors": names[:half], "two.safetensors": names[half:]}
    for file, part in parts.items():
        save_file({n: tensors[n] for n in part}, folder / file)
    (folder / WEIGHTS).unlink()
    places = {name: file for file, part in parts.items() for name in part}
    index = json.dumps({"metadata": {}, "weight_map": places})
    (folder / f"{WEIGHTS}.index.json").write_text(index)


def tied_twice(folder: Path) -> None:
    """The tied output layer is in the file, too."""
    qwen3(folder)
    tensors = load_file(folder / WEIGHTS)
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"]
    assert "lm_head.weight" not in tensors
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def untied(folder: Path) -> None:
    """The config ties weights that differ in the file: Transformers does not tie them."""
    tied_twice(folder)
    tensors = load_file(folder / WEIGHTS)
    tensors["lm_head.weight"] += 1
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def odd_rows(folder: Path) -> None:
    """A vocabulary and biases that two ranks cannot share evenly, and other names in the file."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=101, hidden_size=36, intermediate_size=51, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)


def experts(folder: Path) -> None:
    """Experts that the file has one by one, and the model stacked."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=101, hidden_size=32, intermediate_size=48, moe_intermediate_size=24,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_experts=3, num_experts_per_tok=2, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    names = load_file(folder / WEIGHTS)
    assert any(".experts.2." in name for name in names)


def vision(folder: Path) -> None:
    make_tiny_vision(folder, hidden_size=64)


MODELS = [qwen3, llama_of_two_files, tied_twice, odd_rows, experts, vision]


def whole_lm(folder: Path, dtype: torch.dtype, *_: Any) -> Any:
    return load_lm(folder, dtype), None


def sharded_lm(folder: Path, dtype: torch.dtype, *_: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lm, pending = sharded_load.open_lm(folder, dtype)
    assert pending is not None
    assert all(p.is_meta for p in lm.parameters())
    return lm, pending


def learner(folder: Path, policies: Any, **config: Any) -> Learner:
    made = loss_config(kl_coef=0.1) if policies is FULL else loss_config()
    critic = CriticConfig(kind="head") if policies is LORA else None
    spec = LearnerSpec(folder, policies, LearnerConfig(**config), made, 16, 5, critic=critic)
    return Learner(spec)


def critic(folder: Path, adapter: bool) -> Critic:
    spec = CriticSpec(
        folder,
        CriticConfig(kind="model", lr=1e-3),
        LearnerConfig(),
        5,
        adapter=LORA["a"] if adapter else None,
    )
    return Critic(spec)


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    found = {}
    for name, tensor in named:
        assert not tensor.is_meta, name
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        found[name] = local.detach().clone()
    return found


def items() -> list[Item]:
    rng = np.random.default_rng(1)
    return [
        Item(*(rng.integers(5, 60, 7).astype(np.int32) for _ in "pr"), -np.ones(7, np.float32), 0.5)
        for _ in range(3)
    ]


def results(made: Any) -> tuple[list[Any], list[float]]:
    """What the model computes, before and after it learns."""
    if isinstance(made, Critic):
        given = [JointAction(("x",), (item,)) for item in items()]
        return [row for row, _ in made.values(given)], []
    policy = next(iter(made._spec.policies))
    before = made.logprobs(policy, items())
    measured = made.train(policy, items(), 1)
    return [*before, *made.logprobs(policy, items())], [measured["loss"], measured["grad_norm"]]


def compare(folder: Path, make: Any) -> None:
    found = []
    for module in (learners, critics):
        assert module.open_lm is sharded_load.open_lm
    for opened in (whole_lm, sharded_lm):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learners, "open_lm", opened)
            patch.setattr(critics, "open_lm", opened)
            made = make(folder)
        models = [made._model, getattr(made, "_reference", None)]
        found.append(([bits(model) for model in models if model], results(made)))
    (whole, computed), (sharded, again) = found
    assert len(whole) == len(sharded)
    for one, other in zip(whole, sharded, strict=True):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert tensor.dtype == other[name].dtype, name
            assert torch.equal(tensor, other[name]), name
    for one, other in zip(computed[0], again[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert computed[1] == again[1]


def compare_all(rank: int, folder: Path) -> None:
    with rank_of(rank, 2, folder):
        for make in MODELS:
            model = folder / make.__name__
            compare(model, lambda model: learner(model, FULL))
            if make is not experts:
                compare(model, lambda model: learner(model, LORA))
            compare(model, lambda model: critic(model, False))
        compare(folder / "qwen3", lambda model: critic(model, True))
        compare(folder / "odd_rows", lambda model: learner(model, FULL, dtype="bfloat16"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lm, pending = sharded_load.open_lm(folder / "untied", torch.float32)
        assert pending is None
        assert not lm.lm_head.weight.equal(lm.model.embed_tokens.weight)
        loud = [str(w.message) for w in caught if "every rank loads the whole" in str(w.message)]
        assert len(loud) == (rank == 0)
        assert all("are tied" in text for text in loud)


@pytest.mark.slow
def test_ranks_read_the_shards_of_the_whole_model(tmp_path: Path) -> None:
    for make in (*MODELS, untied):
        make(tmp_path / make.__name__)
    mp.spawn(compare_all, args=(tmp_path,), nprocs=2)


def test_a_missing_accelerate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEFT cannot be imported without it either, so there is no other way to load."""
    monkeypatch.setattr(sharded_load, "num_ranks", lambda: 2)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(LearnerError, match=r"needs accelerate.* pip install accelerate"):
        sharded_load.open_lm(tmp_path, torch.float32)
