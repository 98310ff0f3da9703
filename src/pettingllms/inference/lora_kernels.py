"""LoRA kernels for vLLM on CPU: one matrix product per adapter in the batch.

vLLM's own CPU kernels copy an adapter for every token. They also index the last slot for a row
without an adapter (index -1), so a base request that is batched with adapter requests is answered
with another policy's adapter. These kernels multiply the rows of each adapter together and do not
touch rows of the base.

N rows, one per token; I and O the sizes of input and output; S adapter slots.
"""

# ruff: noqa: N803, N806

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

BASE = -1
"""Index of rows without an adapter."""


def install() -> None:
    """Replace the kernels of vLLM's CPU build in this process."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    kernels = {"bgmv_shrink": shrink, "bgmv_expand": expand, "bgmv_expand_slice": expand_slice}
    for module in (lora_ops, punica_cpu):
        for name, kernel in kernels.items():
            getattr(module, name)  # a vLLM that calls its kernels otherwise fails here
            setattr(module, name, kernel)


def shrink(
    input_NI: Tensor, a_SOI: Tensor, output_NO: Tensor, index_N: Tensor, scaling: float = 1.0
) -> None:
    """Write `scaling * input @ A.T` into the first columns of the output."""
    size = a_SOI.shape[-2]
    for slot, rows in _rows_by_adapter(index_N, len(output_NO), a_SOI):
        product = _product(input_NI, a_SOI, slot, rows, output_NO.dtype)
        output_NO[rows, :size] = scaling * product


def expand(
    input_NI: Tensor, b_SOI: Tensor, output_NO: Tensor, index_N: Tensor, add_inputs: bool = True
) -> None:
    """Add `input @ B.T` to the output, or write it there; either may be padded."""
    size = min(b_SOI.shape[-2], output_NO.shape[1])
    _expand(input_NI, b_SOI, output_NO[:, :size], index_N, add_inputs)


def expand_slice(
    input_NI: Tensor,
    b_SOI: Tensor,
    output_NO: Tensor,
    index_N: Tensor,
    offset: int,
    size: int,
    add_inputs: bool = True,
) -> None:
    """The same for a slice of the output's columns, as in a layer that packs q, k and v."""
    _expand(input_NI, b_SOI, output_NO[:, offset : offset + size], index_N, add_inputs)


def _expand(
    input_NI: Tensor, b_SOI: Tensor, output_NO: Tensor, index_N: Tensor, add_inputs: bool
) -> None:
    size = output_NO.shape[1]
    for slot, rows in _rows_by_adapter(index_N, len(output_NO), b_SOI):
        product = _product(input_NI, b_SOI, slot, rows, output_NO.dtype)[:, :size]
        if not add_inputs:
            output_NO[rows] = product
        elif isinstance(rows, slice):
            output_NO[rows] += product
        else:
            output_NO.index_add_(0, rows, product)


def _product(
    input_NI: Tensor, weights_SOI: Tensor, slot: int, rows: Tensor | slice, dtype: torch.dtype
) -> Tensor:
    weights_OI = weights_SOI[slot].reshape(weights_SOI.shape[-2:]).to(dtype)
    return input_NI[rows].to(dtype) @ weights_OI.T


def _rows_by_adapter(
    index_N: Tensor, num_rows: int, weights_SOI: Tensor
) -> Iterator[tuple[int, Tensor | slice]]:
    """The slot and the rows of each adapter in the batch."""
    indices = index_N.numpy()
    if len(indices) not in (1, num_rows):
        # vLLM reads the log-probs of one prompt with the indices of the whole batch. That matters
        # only to an adapter of the output layer.
        if weights_SOI.any():
            raise RuntimeError("vLLM on CPU cannot score with an adapter of the output layer")
        return
    if (indices == indices[0]).all():
        if indices[0] != BASE:
            yield int(indices[0]), slice(None)
        return
    for slot in np.unique(indices).tolist():
        if slot != BASE:
            yield slot, torch.from_numpy(np.flatnonzero(indices == slot))
