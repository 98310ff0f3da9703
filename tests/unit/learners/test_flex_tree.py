"""Flex attention to ancestors, computed on a CPU: without compilation, or by a compiler that does
nothing."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.overrides import TorchFunctionMode
from tree_cases import CASES, dialogue, siblings

from pettingllms.learners import flex_tree, tree_attention
from pettingllms.learners.forest import Forest, make_forest

CPU = torch.device("cpu")
FIELDS = ("num_blocks", "indices")


def forest_of(items: Any) -> Forest:
    sequences = [np.concatenate([i.prompt_ids, i.response_ids]) for i in items]
    return make_forest([s.astype(np.int64) for s in sequences])


def inputs(num_tokens: int) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    key, value = torch.randn(2, 1, 2, num_tokens, 16)
    return torch.randn(1, 4, num_tokens, 16), key, value


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("items", [CASES["mixed"](), siblings(2, 5, 300, 90)])
def test_it_attends_as_the_blocks_on_a_cpu_do(items: Any) -> None:
    forest = forest_of(items)
    query, key, value = inputs(forest.num_tokens)
    layout = tree_attention.make_layout(forest, CPU)
    ours, _ = tree_attention.tree_attention(None, query, key, value, None, tree=layout)
    mask = flex_tree.ancestor_mask(torch.from_numpy(forest.end_N))
    with torch.no_grad():
        flex = flex_attention(query, key, value, block_mask=mask, enable_gqa=True)
    torch.testing.assert_close(ours, flex.transpose(1, 2), atol=1e-5, rtol=1e-4)


def blocks(num_blocks: Any, indices: Any) -> list[list[int]]:
    """Chosen blocks of keys per block of queries, or the other way round."""
    return [row[:n].tolist() for n, row in zip(num_blocks[0, 0], indices[0, 0], strict=True)]


def compare(forest: Forest) -> None:
    """With the mask that PyTorch builds from all pairs of tokens."""
    end = torch.from_numpy(forest.end_N)
    size = forest.num_tokens
    ours = flex_tree.ancestor_mask(end)
    theirs = create_block_mask(
        lambda _b, _h, q, k: (k <= q) & (q < end[k]), None, None, size, size, device="cpu"
    )
    assert ours.seq_lengths == theirs.seq_lengths
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    for kind in ("kv", "full_kv", "q", "full_q"):
        found, expected = (
            blocks(*(getattr(mask, f"{kind}_{field}") for field in FIELDS))
            for mask in (ours, theirs)
        )
        assert found == expected, kind


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    paths=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 400)), min_size=1, max_size=7),
)
def test_the_mask_is_that_of_all_pairs(seed: int, paths: list[tuple[int, int]]) -> None:
    """Each sequence continues an earlier one, cut anywhere."""
    rng = np.random.default_rng(seed)
    sequences = [np.zeros(0, np.int64)]
    for at, length in paths:
        before = sequences[at % len(sequences)]
        cut = int(rng.integers(0, len(before) + 1))
        sequences.append(np.concatenate([before[:cut], rng.integers(0, 99, length)]))
    compare(make_forest(sequences))


@pytest.mark.parametrize("length", [127, 128, 129, 256, 384])
def test_the_mask_ends_with_a_whole_block_or_not(length: int) -> None:
    compare(make_forest([np.arange(length)]))


class Largest(TorchFunctionMode):
    """The number of elements of the largest tensor that a function returns."""

    size = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.size = max(self.size, out.numel())
        return out


def test_the_mask_of_a_long_row_stays_small() -> None:
    forest = forest_of(dialogue(10, 32_000))
    end = torch.from_numpy(forest.end_N)
    with Largest() as largest:
        flex_tree.ancestor_mask(end)
    assert forest.num_tokens <= largest.size <= 4 * (32_000 / flex_tree.BLOCK) ** 2


def test_attention_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def count(function: Any, **options: Any) -> Any:
        compiled.append((function, options))
        return lambda q, k, v, **_: torch.zeros_like(q)

    monkeypatch.setattr(torch, "compile", count)
    flex_tree._compiled.cache_clear()
    forest = forest_of(CASES["siblings"]())
    query, key, value = inputs(forest.num_tokens)
    layout = tree_attention.Layout([], torch.zeros(0), "a mask")
    try:
        for _ in range(3):
            out, _ = tree_attention.tree_attention(None, query, key, value, None, tree=layout)
    finally:
        flex_tree._compiled.cache_clear()
    assert out.shape == (1, forest.num_tokens, 4, 16)
    assert compiled == [(flex_attention, {"dynamic": True})]
