"""Activation checkpointing: the same gradients, with less memory, for one and two ranks."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch.multiprocessing as mp
from ranks import note, noted, rank_of
from tensor_bytes import TensorBytes
from test_critic import alone, critic, replies
from test_learner import KINDS, batch, learner
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from pettingllms.errors import LearnerError
from pettingllms.learners import checkpointing
from pettingllms.learners.checkpointing import checkpoint_layer, checkpoint_layers
from pettingllms.learners.weights import whole
from pettingllms.models import make_tiny

SIZE = {"max_batch_tokens": 16}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [f"count {n}" for n in range(50)]
    return make_tiny(tmp_path_factory.mktemp("m") / "tiny", texts=texts, hidden_size=64)


def gradients(model: Path, kind: str, **config: Any) -> dict[str, Any]:
    """Gradients of a batch after one optimizer step: B of an adapter and value heads start at
    zero, and hide the rest of the model."""
    if kind == "critic":
        made = critic(model, **SIZE, **config)
        made.train(alone(replies(1)), 1)
        made._accumulate(alone(replies(1)), None)
        return {n: whole(p.grad) for n, p in made._parts[0].parameters.items()}
    learning = learner(model, KINDS[kind], {"entropy_coef": 0.1}, **SIZE, **config)
    policy = next(iter(KINDS[kind]))
    items = batch(learning, policy)
    learning.train(policy, items, 1)
    learning._accumulate(policy, items, None, learning._loss_config(1, 0))
    return {n: whole(p.grad) for n, p in learning._parameters(policy).items()}


def compare_settings(rank: int, num_ranks: int, folder: Path) -> None:
    """Compare gradients with the setting off and on, and count the layers that were wrapped."""
    with rank_of(rank, num_ranks, folder), pytest.MonkeyPatch.context() as patch:
        counted = Mock(side_effect=checkpointing.checkpoint)
        patch.setattr(checkpointing, "checkpoint", counted)
        found: dict[str, Any] = {}
        for kind, dtype in product([*KINDS, "critic"], ["float32", "bfloat16"]):
            off, on = (
                gradients(folder / "tiny", kind, activation_checkpointing=setting, dtype=dtype)
                for setting in (None, True)
            )
            different = [name for name, grad in off.items() if not torch.equal(grad, on[name])]
            num_moving = sum(bool(grad.any()) for grad in off.values())
            found[f"{kind} {dtype}"] = [different, num_moving / len(off), counted.call_count]
        note(found, rank, num_ranks, folder)


def assert_equal_bits(found: dict[str, Any]) -> None:
    calls = [0, *(num_calls for _, _, num_calls in found.values())]
    assert all(before < after for before, after in pairwise(calls)), "layers were not wrapped"
    for kind, (different, moving, _) in found.items():
        assert not different, kind
        assert moving > 0.9, f"{kind}: these gradients show little"


def test_checkpointing_leaves_gradients_bit_equal(model: Path) -> None:
    compare_settings(0, 1, model.parent)
    assert_equal_bits(noted(1, model.parent))


@pytest.mark.slow
def test_checkpointing_leaves_gradients_of_two_ranks_bit_equal(model: Path) -> None:
    mp.spawn(compare_settings, args=(2, model.parent), nprocs=2)
    assert_equal_bits(noted(2, model.parent))


class Counted(torch.nn.Module):
    """A layer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.out = 0, torch.nn.Linear(4, 4)

    def forward(self, hidden: Any, past_key_values: Any = None) -> Any:
        self.calls += 1
        return self.out(hidden).sin()


def test_checkpointed_layer_is_computed_again_in_the_backward_pass() -> None:
    layer = Counted()
    checkpoint_layer(layer)
    layer(torch.ones(4)).sum().backward()
    assert layer.calls == 2


def test_checkpointed_layer_is_computed_once_without_gradients() -> None:
    layer = Counted()
    checkpoint_layer(layer)
    with torch.no_grad():
        layer(torch.ones(4))
    assert layer.calls == 1


def test_checkpointed_layer_is_computed_once_with_a_cache() -> None:
    layer = Counted()
    checkpoint_layer(layer)
    layer(torch.ones(4), past_key_values=transformers.DynamicCache()).sum().backward()
    layer(torch.ones(4), transformers.DynamicCache()).sum().backward()
    assert layer.calls == 2


@pytest.mark.parametrize("setting", [None, True, False])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_checkpointing_is_on_by_default_with_gpus(
    setting: bool | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = Counted()
    monkeypatch.setattr(checkpointing, "decoder_layers", lambda _lm: [layer])
    checkpoint_layers(None, setting, torch.device(device))
    is_wrapped = "forward" in vars(layer)
    assert is_wrapped == (device == "cuda" if setting is None else setting)


def test_checkpointing_names_its_key_if_a_model_has_no_layers() -> None:
    lm = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=16)
    )
    with pytest.raises(LearnerError, match=r"learner\.activation_checkpointing = false"):
        checkpoint_layers(lm, True, torch.device("cpu"))


def qwen3_8b(num_layers: int, checkpointed: bool) -> Any:
    """Some layers of Qwen3-8B in bfloat16, with float32 adapters; fake, so call it in fake mode."""
    from peft import LoraConfig, get_peft_model

    config = transformers.Qwen3Config(
        vocab_size=151936,
        hidden_size=4096,
        num_hidden_layers=num_layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=12288,
        attn_implementation="sdpa",
    )
    with unset_fake_temporarily(), torch.device("meta"):
        lm: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        checkpoint_layers(lm.eval(), checkpointed, torch.device("cpu"))
        adapter = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
        lm = get_peft_model(lm, adapter)
    for module in lm.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            module.cast_input_dtype_enabled = False  # autocast casts inputs
        for name, parameter in module._parameters.items():
            if parameter is not None:
                fake = torch.empty(parameter.shape, dtype=parameter.dtype)
                module._parameters[name] = torch.nn.Parameter(fake, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return lm


def decoder_bytes(num_layers: int, checkpointed: bool, num_tokens: int) -> tuple[int, int]:
    """Bytes of activations after the forward pass, and at the peak of the backward pass."""
    with FakeTensorMode():
        lm = qwen3_8b(num_layers, checkpointed)
        ids = torch.zeros(1, num_tokens, dtype=torch.int64)
        decoder = lm.get_base_model().get_decoder()
        with TensorBytes(ids, *lm.parameters(), *lm.buffers()) as sizes:
            with torch.autocast("cpu", torch.bfloat16):
                # Transformers builds a mask for fake tensors, and none for real ones.
                hidden = decoder(ids, {"full_attention": None}, use_cache=False).last_hidden_state
            after_forward = sizes.alive
            hidden.sum().backward()
    return after_forward, sizes.peak


@pytest.mark.parametrize(("checkpointed", "least", "most"), [(True, 15, 20), (False, 200, 250)])
def test_activations_of_qwen3_8b_at_32k_tokens(checkpointed: bool, least: int, most: int) -> None:
    """Gigabytes of 36 layers, from what each layer adds; gradients of activations included."""
    two, three, four = (decoder_bytes(num, checkpointed, 32768) for num in (2, 3, 4))
    for with_two, with_three, with_four in zip(two, three, four, strict=True):
        per_layer = with_three - with_two
        assert with_four - with_three == per_layer, "layers do not all add the same"
        assert with_three + 33 * per_layer <= most * 1e9
    assert three[1] + 33 * (three[1] - two[1]) >= least * 1e9
