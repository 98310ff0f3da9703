"""Masks of token trees on a CPU: those of long sequences take little memory."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.utils._python_dispatch import TorchDispatchMode
from tree_cases import CASES, decisions, dialogue, siblings

from pettingllms.learners import tree_attention
from pettingllms.learners.forest import Forest, make_forest

CPU = torch.device("cpu")
HEADS, KEY_HEADS, SIZE = 4, 2, 16


def forest_of(items: Any) -> Forest:
    sequences = [np.concatenate([i.prompt_ids, i.response_ids]) for i in items]
    return make_forest([s.astype(np.int64) for s in sequences])


def layouts(forest: Forest, patch: pytest.MonkeyPatch) -> list[Any]:
    """With dense masks, and with overlapping ones."""
    found = []
    for limit in (2**40, 0):
        patch.setattr(tree_attention, "MAX_MASK_BYTES", limit)
        found.append(tree_attention.make_layout(forest, CPU))
    return found


def attended(forest: Forest, layout: Any) -> list[Any]:
    """Outputs, and gradients by queries, keys and values."""
    torch.manual_seed(0)
    shapes = [(1, heads, forest.num_tokens, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    out, _ = tree_attention.tree_attention(None, *inputs, None, tree=layout)
    out.backward(torch.randn(out.shape))
    return [out.detach(), *(x.grad for x in inputs)]


def mask_bytes(layout: Any) -> int:
    return sum(block.mask_R1QK.untyped_storage().nbytes() for block in layout.blocks)


@pytest.mark.parametrize("case", list(CASES))
def test_overlapping_masks_are_the_dense_ones(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_of(CASES[case]())
    dense, overlapping = layouts(forest, monkeypatch)
    assert mask_bytes(overlapping) < mask_bytes(dense)
    expected, found = attended(forest, dense), attended(forest, overlapping)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "items",
    [siblings(1, 1, 31_000, 1000), dialogue(10, 32_000), decisions(5, 4, 5000, 500)],
    ids=["one sequence", "10 turns", "5 decisions"],
)
def test_masks_of_long_sequences_are_bounded(items: Any) -> None:
    """Dense, they would take up to 4 GB; also while they are made."""
    forest = forest_of(items)
    _ = forest.depth_N, forest.end_N
    tracemalloc.start()
    layout = tree_attention.make_layout(forest, CPU)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    dense = sum(block.mask_R1QK.numel() * 4 for block in layout.blocks)
    assert dense > 10 * tree_attention.MAX_MASK_BYTES
    assert mask_bytes(layout) <= peak <= tree_attention.MAX_MASK_BYTES


def test_small_masks_stay_dense() -> None:
    """Their gradients keep their bits."""
    for block in tree_attention.make_layout(forest_of(CASES["mixed"]()), CPU).blocks:
        assert block.mask_R1QK.is_contiguous()


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is computed."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
        storages = [x.untyped_storage().nbytes() // x.itemsize for x in tensors]
        self.size = max(self.size, *storages)
        return out


def test_no_layer_makes_the_overlapping_mask_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_of(dialogue(3, 1500))
    _, layout = layouts(forest, monkeypatch)
    with Largest() as largest:
        attended(forest, layout)
    assert largest.size <= 2 * forest.num_tokens * HEADS * SIZE
    assert largest.size < max(block.mask_R1QK.numel() for block in layout.blocks)
