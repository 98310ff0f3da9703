"""Token trees give the gradients of padded rows and read each distinct token once."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
import tree_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_cases import CASES, gradients, learner_of, pairs, read_padded, relative_difference

from pettingllms.config import LearnerConfig, loss_config
from pettingllms.learners import tree_attention, tree_check
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.models import make_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("m") / request.param
    return make_tiny(folder, request.param, texts=["a b c"], hidden_size=64)


def compare(learner: Learner, units: list[Any]) -> float:
    assert learner._micro_batches.use_trees, learner.notice
    trees, loss = gradients(learner, units)
    kept = learner._micro_batches
    read_padded(learner)
    rows, expected = gradients(learner, units)
    learner._micro_batches = kept
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
    return relative_difference(trees, rows)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("loss", ["clip", "gspo", "plain", "dpo"])
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_gradients_are_those_of_padded_rows(model: Path, kind: str, loss: str, case: str) -> None:
    """With values, KL penalty and entropy bonus where the loss takes them."""
    items = CASES[case]()
    units = pairs(items) if loss == "dpo" else items
    assert compare(learner(model, kind, loss), units) < 1e-5


@cache
def learner(model: Path, kind: str, loss: str) -> Learner:
    return learner_of(model, kind, loss)


@pytest.mark.parametrize("max_tokens", [40, 150])
def test_however_a_batch_is_cut(model: Path, max_tokens: int) -> None:
    learner = learner_of(model, "full", max_tokens=max_tokens)
    items = CASES["mixed"]()
    assert len(learner._micro_batches.split(items)) > 1
    assert compare(learner, items) < 1e-5


@st.composite
def forests(draw: st.DrawFn) -> list[Item]:
    """Sequences over few tokens, so that prefixes and whole replies are often equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    found = []
    for _ in range(draw(st.integers(1, 8))):
        ids = np.array(draw(st.lists(st.integers(5, 7), min_size=2, max_size=9)), np.int32)
        cut = draw(st.integers(1, len(ids) - 1))
        found.append(tree_cases.with_credit(ids[:cut], ids[cut:], rng))
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(items=forests(), max_tokens=st.integers(2, 60))
def test_on_any_forest(items: list[Item], max_tokens: int, tiny_learner: Learner) -> None:
    kept = tiny_learner._micro_batches
    tiny_learner._micro_batches = replace(kept, max_tokens=max_tokens)
    try:
        assert compare(tiny_learner, items) < 1e-5
    finally:
        tiny_learner._micro_batches = kept


@pytest.fixture(scope="module")
def tiny_learner(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    folder = tmp_path_factory.mktemp("m") / "tiny"
    return learner_of(make_tiny(folder, "llama", texts=["a b c"], hidden_size=64), "full")


def test_values_and_log_probs_are_the_same(model: Path) -> None:
    learner, items = learner_of(model, "full"), CASES["mixed"]()
    found = learner.logprobs("p", items), learner.values("p", items)
    read_padded(learner)
    expected = learner.logprobs("p", items), learner.values("p", items)
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_bfloat16_differs_by_rounding_only(model: Path) -> None:
    learner, items = learner_of(model, "lora", dtype="bfloat16"), CASES["mixed"]()
    assert learner._micro_batches.use_trees
    found = learner.logprobs("p", items)
    read_padded(learner)
    for one, other in zip(found, learner.logprobs("p", items), strict=True):
        assert np.abs(one - other).max() < 0.1


@pytest.mark.parametrize(
    "items",
    [
        tree_cases.siblings(1, 8, 400, 64),
        tree_cases.dialogue(10, 1000),
        tree_cases.decisions(5, 4, 160, 40),
    ],
    ids=["8 siblings", "10 turns", "5 decisions"],
)
def test_tokens_read_are_the_distinct_ones(items: list[Item], tiny_learner: Learner) -> None:
    """Counted here as the distinct prefixes of all sequences."""
    sequences = [np.concatenate([i.prompt_ids, i.response_ids]).tolist() for i in items]
    distinct = {tuple(s[: end + 1]) for s in sequences for end in range(len(s))}
    micro_batches = replace(tiny_learner._micro_batches, max_tokens=8192)
    passes = [micro_batches.batch(p) for p in micro_batches.split(items)]
    read = sum(batch.sequences.num_positions for batch in passes)
    padded = micro_batches.batch(items, as_trees=False).sequences.num_positions
    assert read <= 1.05 * len(distinct)
    assert padded > 2.5 * read


def mistral(folder: Path, window: int | None) -> Path:
    transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=200, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, sliding_window=window,
            initializer_range=0.5,
        )
    ).save_pretrained(folder)  # fmt: skip
    return folder


def mistral_learner(folder: Path) -> Learner:
    policy = tree_cases.POLICIES["full"]
    return Learner(LearnerSpec(folder, {"p": policy}, LearnerConfig(), loss_config(), 8, 3))


def test_a_sliding_window_is_read_in_padded_rows_and_reported(tmp_path: Path) -> None:
    learner = mistral_learner(mistral(tmp_path, 8))
    assert not learner._micro_batches.use_trees
    assert "mistral models cannot read token trees" in learner.notice
    assert "padded rows" in learner.notice


def test_without_a_window_the_same_family_reads_trees(tmp_path: Path) -> None:
    learner = mistral_learner(mistral(tmp_path, None))
    assert learner._micro_batches.use_trees
    assert not learner.notice


def test_a_model_that_ignores_the_tree_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a family would whose attention code does not pass arguments on."""
    real = tree_attention.tree_attention

    def row(*args: Any, tree: Any = None, **kwargs: Any) -> Any:
        return real(*args[:4], None, **kwargs)

    monkeypatch.setattr(tree_attention, "tree_attention", row)
    learner = mistral_learner(mistral(tmp_path, None))
    assert not learner._micro_batches.use_trees
    assert "standard deviations" in learner.notice


def causal(_module: Any, query: Any, key: Any, value: Any, _mask: Any, **_: Any) -> Any:
    """Attention to the prefix, whatever else is asked for."""
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(query, key, value, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


@pytest.mark.parametrize("name", tree_attention.OTHER_ATTENTION)
def test_attention_of_another_kind_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tree_attention.tree_attention

    def other(*args: Any, **kwargs: Any) -> Any:
        return real(*args, **{**kwargs, name: 5.0})

    monkeypatch.setattr(tree_attention, "tree_attention", other)
    monkeypatch.setattr(
        "transformers.integrations.sdpa_attention.sdpa_attention_forward",
        lambda module, q, k, v, mask, **_: (
            torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )
            .transpose(1, 2)
            .contiguous(),
            None,
        ),
    )
    learner = mistral_learner(mistral(tmp_path, None))
    assert not learner._micro_batches.use_trees
    assert f"its attention uses {name}" in learner.notice


def test_the_check_reads_shared_and_unrelated_prefixes() -> None:
    items = tree_check.sequences(200)
    prompts = {item.prompt_ids.tobytes() for item in items}
    assert len(prompts) < len(items)
    assert max(item.num_tokens for item in items) < 32
