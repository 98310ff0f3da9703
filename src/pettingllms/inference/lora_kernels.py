"""LoRA kernels for vLLM on CPU: one matrix product per adapter in the batch.

vLLM's own CPU kernels copy an adapter for every token. They also index the last slot for a row
without an adapter (index -1), so a base request that is batched with adapter requests is answered
with another policy's adapter. These kernels multiply the rows of each adapter together and do not
touch rows of the base.

Linear layers use `packed_adapters`: rows are grouped once per forward pass, and q, k and v share
one product. Other layers (embedding, output layer) use the functions here, which have the
signatures of vLLM's kernels.

N rows, one per token; I and O the sizes of input and output; S adapter slots.
"""

# ruff: noqa: N803, N806

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.inference.packed_adapters import BASE, AdapterRows, add_product, pack

Replaced = Iterator[tuple[Any, str, Any]]
"""Functions that were replaced, as their owner, name and value."""
_replaced: list[tuple[Any, str, Any]] = []


def install() -> None:
    """Replace the kernels of vLLM's CPU build in this process, before it loads a model."""
    if _replaced:
        return
    from vllm.lora.layers.base import BaseLayerWithLoRA
    from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA
    from vllm.lora.layers.logits_processor import LogitsProcessorWithLoRA
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    kernels = {"bgmv_shrink": shrink, "bgmv_expand": expand, "bgmv_expand_slice": expand_slice}
    _replaced.extend(_replace(lora_ops, **kernels))
    _replaced.extend(_replace(punica_cpu, **kernels))
    _replaced.extend(_group_rows(punica_cpu.PunicaWrapperCPU))
    _replaced.extend(_pack_layers(BaseLayerWithLoRA, BaseLinearLayerWithLoRA))
    _replaced.extend(_record_output_slots(LogitsProcessorWithLoRA))


def uninstall() -> None:
    """Restore vLLM's own kernels, for comparisons."""
    while _replaced:
        owner, name, function = _replaced.pop()
        setattr(owner, name, function)


def _replace(owner: Any, **functions: Any) -> Replaced:
    """Replace functions of a module or class. A vLLM without them fails here."""
    for name, function in functions.items():
        yield owner, name, getattr(owner, name)
        setattr(owner, name, function)


def _group_rows(wrapper: Any) -> Replaced:
    """Group the rows of a batch when vLLM sets them, and use the groups in every linear layer."""
    update_metadata, add_lora_linear = wrapper.update_metadata, wrapper.add_lora_linear
    add_lora_logits = wrapper.add_lora_logits

    def update(self: Any, *args: Any, **options: Any) -> None:
        update_metadata(self, *args, **options)
        self.adapter_rows = AdapterRows.from_index(self.token_lora_indices)

    def add_linear(self: Any, y_NO: Tensor, x_NI: Tensor, a: Any, b: Any, *args: Any) -> None:
        packed = getattr(a, "packed", None)
        if packed is None or packed.a_SIP.dtype != x_NI.dtype:
            add_lora_linear(self, y_NO, x_NI, a, b, *args)
            return
        add_product(y_NO, x_NI, packed, self.adapter_rows)

    def add_logits(self: Any, y_NO: Tensor, x_NI: Tensor, a: Tensor, b: Tensor, *args: Any) -> None:
        if getattr(b, "slots", True):  # an empty set: no adapter of the output layer is loaded
            add_lora_logits(self, y_NO, x_NI, a, b, *args)

    return _replace(
        wrapper, update_metadata=update, add_lora_linear=add_linear, add_lora_logits=add_logits
    )


def _pack_layers(base: Any, linear: Any) -> Replaced:
    """Pack the adapters of every linear layer when vLLM has created it."""
    set_mapping = base.set_mapping

    def set_and_pack(self: Any, wrapper: Any) -> None:
        set_mapping(self, wrapper)
        if isinstance(self, linear):
            pack(self)

    return _replace(base, set_mapping=set_and_pack)


def _record_output_slots(output: Any) -> Replaced:
    """Record which slots have an adapter of the output layer. Most have none, and a product with
    the whole vocabulary is expensive."""
    create, set_lora, reset_lora = output.create_lora_weights, output.set_lora, output.reset_lora

    def create_none(self: Any, *args: Any, **options: Any) -> None:
        create(self, *args, **options)
        self.lora_b_stacked.slots = set()

    def add(self: Any, index: int, *weights: Any) -> None:
        set_lora(self, index, *weights)
        self.lora_b_stacked.slots.add(index)

    def remove(self: Any, index: int) -> None:
        reset_lora(self, index)
        self.lora_b_stacked.slots.discard(index)

    return _replace(output, create_lora_weights=create_none, set_lora=add, reset_lora=remove)


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
