"""Reading a prompt once for all of its replies changes nothing but the time it takes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from pictures import plain

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.config.policies import FullPolicy, LoraPolicy
from pettingllms.learners import hidden_states as module
from pettingllms.learners.batches import Item, group_by_prompt, micro_batches
from pettingllms.learners.hidden_states import num_computed, shared_prompts
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.learners.micro_batches import MicroBatches
from pettingllms.learners.policy_model import Padded
from pettingllms.models import make_tiny

POLICIES = {"full": FullPolicy(model="m", lr=1e-3), "lora": LoraPolicy(model="m", lr=1e-3)}


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m") / request.param
    return make_tiny(folder, request.param, texts=["a b c"], hidden_size=64)


def siblings(num_prompts: int = 3, replies: int = 5) -> list[Item]:
    rng = np.random.default_rng(0)
    items = []
    for _ in range(num_prompts):
        prompt = rng.integers(5, 200, rng.integers(20, 30)).astype(np.int32)
        for _ in range(replies):
            reply = rng.integers(5, 200, rng.integers(1, 6)).astype(np.int32)
            logprobs = rng.normal(-3, 1, len(reply)).astype(np.float32)
            items.append(Item(prompt, reply, logprobs, float(rng.normal())))
    return items


def shuffled(items: list[Item]) -> list[Item]:
    """As minibatches are."""
    return [items[at] for at in np.random.default_rng(1).permutation(len(items))]


def moved(
    model: Path, kind: str, max_tokens: int
) -> tuple[list[np.ndarray], dict[str, torch.Tensor], dict]:
    spec = LearnerSpec(
        model,
        {"p": POLICIES[kind]},
        LearnerConfig(max_batch_tokens=max_tokens),
        loss_config(kl_coef=0.1, entropy_coef=0.1),
        8,
        3,
    )
    made = Learner(spec)
    before = made.logprobs("p", shuffled(siblings()))
    measured = made.train("p", shuffled(siblings()), 1)
    gradients = {name: p.detach().clone() for name, p in made._parameters("p").items()}
    return before, gradients, measured


@pytest.mark.parametrize("max_tokens", [4096, 180])
@pytest.mark.parametrize("kind", list(POLICIES))
def test_log_probs_losses_and_updates_are_the_same(
    model: Path, kind: str, max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass, and in several that the two ways cut differently."""
    assert Padded(siblings(), torch.device("cpu"), may_share=True)._shared is not None
    shared, shared_weights, shared_numbers = moved(model, kind, max_tokens)
    monkeypatch.setattr(module, "MAX_SHARED_TOKENS", 0.0)
    whole, whole_weights, whole_numbers = moved(model, kind, max_tokens)
    for one, other in zip(shared, whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert shared_numbers["loss"] == pytest.approx(whole_numbers["loss"], abs=1e-5)
    assert shared_numbers["grad_norm"] == pytest.approx(whole_numbers["grad_norm"], rel=1e-4)
    moved_by = max(float((shared_weights[n] - whole_weights[n]).abs().max()) for n in whole_weights)
    assert moved_by < 1e-4  # Adam's first step moves every weight by 1e-3


def passes_of(items: list[Item], can_share: bool = True) -> list[list[Item]]:
    return MicroBatches(180, torch.device("cpu"), can_share, None).split(items)


def test_replies_to_one_prompt_go_through_a_model_together_if_less_is_read_so() -> None:
    items = shuffled(siblings(24))
    (by_length,) = micro_batches(items, 180, 1)
    passes = passes_of(items)
    assert passes == group_by_prompt(items, 180)
    assert sum(map(num_computed, passes)) < 0.6 * sum(map(num_computed, by_length))
    assert passes_of(items, can_share=False) == by_length


def test_and_by_length_if_their_replies_differ_more_than_they_share() -> None:
    prompt = np.arange(5, dtype=np.int32)
    lengths = [60, 1, 1, 1, 60, 1, 1, 1]
    items = [Item(prompt + at // 4, np.zeros(n, np.int32), np.zeros(n, np.float32), 1.0)
             for at, n in enumerate(lengths)]  # fmt: skip
    (by_length,) = micro_batches(items, 180, 1)
    assert passes_of(items) == by_length != group_by_prompt(items, 180)


def test_what_sees_is_cut_by_length() -> None:
    """Nothing is shared where there are images."""
    items = [replace(item, images=(plain(),)) for item in shuffled(siblings())]
    assert passes_of(items) == micro_batches(items, 180, 1)[0]


def test_prompts_that_all_differ_are_read_in_one_piece() -> None:
    assert Padded(siblings(8, 1), torch.device("cpu"), may_share=True)._shared is None
    assert Padded(siblings(), torch.device("cpu"))._shared is None


@pytest.mark.parametrize("policy", list(POLICIES.values()), ids=list(POLICIES))
def test_a_model_with_a_sliding_window_reads_every_reply_whole(
    policy: FullPolicy | LoraPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding inside a window would push prompt tokens out of it."""
    transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=200, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, sliding_window=8, initializer_range=0.5,
        )
    ).save_pretrained(tmp_path)  # fmt: skip
    spec = LearnerSpec(tmp_path, {"p": policy}, LearnerConfig(), loss_config(), 8, 3)
    found = Learner(spec).logprobs("p", siblings())
    monkeypatch.setattr(module, "MAX_SHARED_TOKENS", 0.0)
    for one, other in zip(found, Learner(spec).logprobs("p", siblings()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_models_that_keep_every_token_may_share_and_others_may_not() -> None:
    """By the cache that a configuration asks for, whatever its family calls it."""

    class Decoder:
        def __init__(self, config: object) -> None:
            self.config = config

        def forward(self, past_key_values: object = None) -> None: ...

    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    assert module.can_share(Decoder(transformers.Qwen2Config(num_hidden_layers=2)))
    mixed = transformers.Qwen2Config(num_hidden_layers=2, **windows)
    assert not module.can_share(Decoder(mixed))
    assert not module.can_share(object())


def test_ids_of_any_width_are_the_same_prompts() -> None:
    items = siblings()
    wide = [replace(item, prompt_ids=item.prompt_ids.astype(np.int64)) for item in items]
    narrow_prompts, wide_prompts = (shared_prompts(i, torch.device("cpu")) for i in (items, wide))
    assert narrow_prompts is not None
    assert wide_prompts is not None
    assert torch.equal(narrow_prompts.ids_UP, wide_prompts.ids_UP)
