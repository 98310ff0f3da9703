"""Attention within a forest of token trees, for any Transformers model.

A model gets the distinct tokens of a forest in one row, and each token attends to its ancestors.
Transformers passes keyword arguments of a model to its attention function, so the layout travels
with the call; activation checkpointing recomputes a layer with the same layout.

On CPU, the keys of each run's sequence are gathered, and runs of similar size form one padded
product. On GPU, flex attention applies the ancestor mask to the row as it is, without a copy of
keys; see `flex_tree`. That code has never run on a GPU.

N distinct tokens in a row, R runs in a block, Q tokens of the longest run, K keys of the longest
sequence, A attention heads, D size of a head.
"""

# ruff: noqa: N803, N806, N815

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pettingllms.learners import flex_tree
from pettingllms.learners.forest import Forest, Places, Run

NAME = "pettingllms_tree"
OTHER_ATTENTION = ("sliding_window", "softcap", "s_aux")
"""Arguments of attention functions that this one does not implement."""
NO_MASK = torch.ones(1, 1, 1, 1, dtype=torch.bool)
"""Transformers passes a mask with four axes on as it is, instead of building one for every pair."""
MAX_PADDING = 1.3
"""Largest size of a block relative to its runs without padding."""
SMALL_BLOCK = 128 * 128
"""Blocks up to this many pairs of query and key may have any padding: their cost is that of the
call."""
MAX_MASK_BYTES = 2**26
"""Masks of a row that are larger in sum are views in which rows overlap. Then the queries of a run
are in reverse order, so gradients of keys and values are summed in another order."""


class UnsupportedAttentionError(Exception):
    """A model's attention is more than that of each token to its prefix."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Runs of similar size."""

    query_RQ: Tensor
    """Positions of the runs' tokens in the row; padding repeats position 0."""
    key_RK: Tensor
    """Positions of the tokens of their sequences."""
    mask_R1QK: Tensor
    """Added to scores: 0 if a query may attend to a key, else minus infinity. Padding attends to
    some key. PyTorch would convert a mask of booleans, and save the result, in every layer."""


class Layout:
    """Which tokens of a row attend to which.

    Not a dataclass: FSDP casts the tensors of arguments that are, here the masks in every layer."""

    def __init__(self, blocks: list[Block], order_N: Tensor, block_mask: Any = None) -> None:
        self.blocks = blocks
        self.order_N = order_N
        """Position of each token of the row among the queries of all blocks."""
        self.block_mask = block_mask
        """The ancestor mask of flex attention, on a GPU."""


def make_layout(forest: Forest, device: torch.device) -> Layout:
    """The layout that suits the device."""
    if device.type != "cpu":  # never run on a GPU
        end_N = torch.from_numpy(forest.end_N).to(device)
        return Layout([], end_N, flex_tree.ancestor_mask(end_N))
    grouped = _similar(forest.runs)
    overlap = sum(map(_mask_bytes, grouped)) > MAX_MASK_BYTES
    blocks = [_block(forest, runs, overlap) for runs in grouped]
    order = np.zeros(forest.num_tokens, np.int64)
    start = 0
    for runs, block in zip(grouped, blocks, strict=True):
        width = block.query_RQ.shape[1]
        for row, run in enumerate(runs):
            at = _places(run, width, overlap)
            order[run.start : run.start + run.length] = start + row * width + at
        start += len(runs) * width
    return Layout(blocks, torch.from_numpy(order))


def _similar(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs in groups that need little padding."""
    groups: list[list[Run]] = []
    area = 0
    widest = most = 0
    for run in sorted(runs, key=lambda run: (run.length, run.depth), reverse=True):
        own = run.length * (run.depth + run.length)
        widest, most = max(widest, run.length), max(most, run.depth + run.length)
        padded = (len(groups[-1]) + 1) * widest * most if groups else 0
        if not groups or padded > max(SMALL_BLOCK, MAX_PADDING * (area + own)):
            groups.append([])
            area, widest, most = 0, run.length, run.depth + run.length
        groups[-1].append(run)
        area += own
    return groups


def _mask_bytes(runs: Sequence[Run]) -> int:
    return len(runs) * _longest_run(runs) * _longest_sequence(runs) * torch.float32.itemsize


def _longest_run(runs: Sequence[Run]) -> int:
    return max(run.length for run in runs)


def _longest_sequence(runs: Sequence[Run]) -> int:
    return max(run.depth + run.length for run in runs)


def _places(run: Run, width: int, reverse: bool) -> Places:
    """Where the tokens of a run are among the queries of its row."""
    places = np.arange(run.length)
    return width - 1 - places if reverse else places


def _block(forest: Forest, runs: Sequence[Run], overlap: bool) -> Block:
    width, most = _longest_run(runs), _longest_sequence(runs)
    query = np.zeros((len(runs), width), np.int64)
    key = np.zeros((len(runs), most), np.int64)
    for row, run in enumerate(runs):
        at = _places(run, width, overlap)
        query[row, at] = np.arange(run.start, run.start + run.length)
        key[row, : run.depth + run.length] = forest.places[run.sequence][: run.depth + run.length]
    mask = (_overlapping_mask if overlap else _dense_mask)(runs, width, most)
    return Block(torch.from_numpy(query), torch.from_numpy(key), mask)


def _dense_mask(runs: Sequence[Run], width: int, most: int) -> Tensor:
    depth = np.zeros((len(runs), width), np.int64)
    for row, run in enumerate(runs):
        depth[row, : run.length] = np.arange(run.depth, run.depth + run.length)
    allowed = np.arange(most) <= depth[:, None, :, None]
    return _additive(allowed)


def _overlapping_mask(runs: Sequence[Run], width: int, most: int) -> Tensor:
    """The mask of queries in reverse order. Query q may attend to key k if q + k is at most the
    depth of the run's last query, padding included; so the row of each query is that of the one
    before, moved by one. PyTorch's kernel reads it from the memory of width + most numbers."""
    last = np.array([run.depth + width - 1 for run in runs])
    line = _additive(np.arange(width + most - 1) <= last[:, None])
    stride = line.stride(0)
    return line.as_strided((len(runs), 1, width, most), (stride, stride, 1, 1))


def _additive(allowed: npt.NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.where(allowed, np.float32(0), np.float32(-np.inf)))


Attend = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""Attention of the queries, keys and values of a block, with its mask and a scale."""


def float32_attention(
    query_RAQD: Tensor, key_RGKD: Tensor, value_RGKD: Tensor, mask_R1QK: Tensor, scale: float
) -> Tensor:
    """PyTorch's kernel. On CPU, that for bfloat16 takes up to four times as long for short runs."""
    with torch.autocast("cpu", enabled=False):
        return torch.nn.functional.scaled_dot_product_attention(
            query_RAQD.float(),
            key_RGKD.float(),
            value_RGKD.float(),
            attn_mask=mask_R1QK,
            scale=scale,
            enable_gqa=query_RAQD.shape[1] != key_RGKD.shape[1],
        )


def tree_attention(
    module: Any,
    query_1AND: Tensor,
    key_1AND: Tensor,
    value_1AND: Tensor,
    attention_mask: Tensor | None,
    tree: Layout | None = None,
    attend: Attend = float32_attention,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function that Transformers calls. Without a tree it is the ordinary one.
    `attend` computes a block on CPU."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if tree is None:
        out: tuple[Tensor, None] = sdpa_attention_forward(
            module, query_1AND, key_1AND, value_1AND, attention_mask, **kwargs
        )
        return out
    if unknown := [name for name in OTHER_ATTENTION if kwargs.get(name) is not None]:
        raise UnsupportedAttentionError(f"its attention uses {' and '.join(unknown)}")
    scaling = kwargs.get("scaling")
    if tree.block_mask is not None:
        return flex_tree.attend(query_1AND, key_1AND, value_1AND, tree.block_mask, scaling), None
    query_NAD, key_NAD, value_NAD = (
        x_1AND[0].transpose(0, 1) for x_1AND in (query_1AND, key_1AND, value_1AND)
    )
    scale = query_NAD.shape[-1] ** -0.5 if scaling is None else scaling
    outputs = [_attend(query_NAD, key_NAD, value_NAD, b, scale, attend) for b in tree.blocks]
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return joined.index_select(0, tree.order_N)[None], None


def _attend(
    query_NAD: Tensor,
    key_NAD: Tensor,
    value_NAD: Tensor,
    block: Block,
    scale: float,
    attend: Attend,
) -> Tensor:
    """The outputs of a block's queries, padding included."""
    query_RAQD = _gather(query_NAD, block.query_RQ)
    key_RGKD, value_RGKD = (_gather(x_NAD, block.key_RK) for x_NAD in (key_NAD, value_NAD))
    out_RAQD = attend(query_RAQD, key_RGKD, value_RGKD, block.mask_R1QK, scale)
    return out_RAQD.transpose(1, 2).flatten(0, 1).to(query_NAD.dtype)


def _gather(x_NAD: Tensor, at: Tensor) -> Tensor:
    """The chosen tokens with their heads before their positions."""
    chosen = x_NAD.index_select(0, at.flatten())  # its backward is faster than that of x[at]
    return chosen.view(*at.shape, *x_NAD.shape[1:]).transpose(1, 2)


def install(decoder: Any, attend: Attend = float32_attention) -> bool:
    """Let a model's decoder use tree attention; False if it cannot.

    It cannot if some layer has a sliding window or a recurrent state, which depend on the order of
    the row."""
    from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
    from transformers.cache_utils import DynamicLayer
    from transformers.masking_utils import sdpa_mask

    if not hasattr(decoder, "config"):
        return False
    if "past_key_values" not in inspect.signature(decoder.forward).parameters:
        return False
    if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=decoder.config).layers):
        return False
    name = f"{NAME}_{attend.__name__}"
    # Compiled layers call it as it is: Dynamo cannot trace the layout.
    disable: Any = torch.compiler.disable  # has no types
    AttentionInterface.register(name, disable(partial(tree_attention, attend=attend)))
    AttentionMaskInterface.register(name, sdpa_mask)
    decoder.config._attn_implementation = name  # noqa: SLF001 - a public setter checks known names
    return True
