"""Flex attention to the ancestors in a forest of token trees, for GPUs. Never run on a GPU.

The mask is built from the bounds of whole blocks of keys, so it takes one entry per pair of blocks.
`create_block_mask` would first build one entry per pair of tokens: 1 GB for 32k tokens.

N distinct tokens in a row, B blocks of tokens.
"""

# ruff: noqa: N803, N806

from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 128
"""Tokens of a block: the default of flex attention."""


def ancestor_mask(end_N: Tensor) -> Any:
    """The block mask in which tokens attend to their ancestors. `end_N`: the position after each
    token's last descendant."""
    from torch.nn.attention.flex_attention import BlockMask

    def is_ancestor(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < end_N[key])

    some_BB, all_BB = _attended_blocks(end_N)
    return BlockMask.from_kv_blocks(
        *_listed(some_BB & ~all_BB),
        *_listed(all_BB),
        BLOCK_SIZE=BLOCK,
        mask_mod=is_ancestor,
        seq_lengths=(len(end_N), len(end_N)),
    )


def _attended_blocks(end_N: Tensor) -> tuple[Tensor, Tensor]:
    """For each block of queries, the blocks of keys that some of its tokens attend to, and those
    that all do. A block that the end of the row cuts is never among the latter."""
    num_blocks = -(-len(end_N) // BLOCK)
    end_BK = end_N.new_zeros(num_blocks * BLOCK)
    end_BK[: len(end_N)] = end_N
    end_BK = end_BK.view(num_blocks, BLOCK)
    block_B = torch.arange(num_blocks, device=end_N.device)
    query_B1, key_1B = block_B[:, None], block_B[None]
    is_before_BB = key_1B < query_B1
    some_BB = is_before_BB & (end_BK.amax(1) > query_B1 * BLOCK)
    all_BB = is_before_BB & (end_BK.amin(1) >= (query_B1 + 1) * BLOCK)
    return some_BB | (key_1B == query_B1), all_BB


def _listed(chosen_BB: Tensor) -> tuple[Tensor, Tensor]:
    """The number of chosen blocks of keys per block of queries, and their indices before those of
    others, for one batch and one head."""
    indices_BB = chosen_BB.int().argsort(dim=1, descending=True, stable=True)
    return chosen_BB.sum(1, dtype=torch.int32)[None, None], indices_BB.int()[None, None]


def attend(
    query_1AND: Tensor, key_1AND: Tensor, value_1AND: Tensor, mask: Any, scaling: float | None
) -> Tensor:
    """The outputs of all tokens, (1, N, A, D)."""
    out_1AND: Tensor = _compiled()(
        query_1AND, key_1AND, value_1AND, block_mask=mask, scale=scaling, enable_gqa=True
    )
    return out_1AND.transpose(1, 2)


@cache
def _compiled() -> Any:
    """Flex attention, compiled once for all layers and passes; else it computes all scores."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)
