"""LoRA adapters of a linear layer in one buffer, and their product with the rows of a batch.

vLLM keeps A and B of q, k and v apart. Here they are views into two buffers per layer: the A side
by side, the B as a block-diagonal matrix. So vLLM loads adapters as before, and a layer takes two
matrix products. A batch with several adapters is multiplied as one batch of matrices, padded to
the adapter with the most rows.

N rows, one per token; I and O the sizes of input and output; S adapter slots; P the ranks of all
parts of a layer.
"""

# ruff: noqa: N803, N806, N815

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

BASE = -1
"""Index of rows without an adapter."""
MAX_PADDING = 2
"""Rows of a padded batch per real row, above which adapters are multiplied one by one."""
SMALL_RANK = 16
"""Up to this rank one product with zeros is faster than one product per part: in bfloat16, and in
a batch of matrices."""


class Parts(tuple[Tensor, ...]):
    """What vLLM knows of a layer: A or B per part, here as views into the packed buffers."""

    packed: "PackedAdapters"


@dataclass(frozen=True, slots=True)
class PackedAdapters:
    """The adapters of one linear layer."""

    a_SIP: Tensor
    b_SPO: Tensor
    blocks: tuple[tuple[slice, slice], ...]
    """Rows and columns of the blocks of B that are multiplied separately."""
    batch_blocks: tuple[tuple[slice, slice], ...]
    """The same in a batch with several adapters."""


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The rows of each adapter in a forward pass, computed once for all layers."""

    num_rows: int
    """1: the adapter applies to any number of rows."""
    slots: tuple[int, ...] = ()
    """Adapters in the batch, in ascending order."""
    rows: tuple[Tensor, ...] = ()
    """The rows of each; none if one adapter has them all."""
    padded: Tensor | None = None
    """The rows of all adapters, each padded to the same number; None: multiply one by one."""
    places: Tensor | None = None
    """Where the rows are among the padded ones; None: nothing is padded."""

    @classmethod
    def from_index(cls, index_N: Tensor) -> "AdapterRows":
        """Group the rows of a batch by adapter."""
        index = index_N.numpy()
        slots = tuple(int(slot) for slot in np.unique(index) if slot != BASE)
        if not slots or (index == slots[0]).all():
            return cls(len(index), slots)
        rows = [np.flatnonzero(index == slot) for slot in slots]
        sizes = [len(some) for some in rows]
        longest, tensors = max(sizes), tuple(torch.from_numpy(some) for some in rows)
        if len(slots) * longest > MAX_PADDING * sum(sizes):
            return cls(len(index), slots, tensors)
        padded = np.concatenate([np.resize(some, longest) for some in rows])
        starts = range(0, len(padded), longest)
        places = np.concatenate(
            [np.arange(at, at + n) for at, n in zip(starts, sizes, strict=True)]
        )
        return cls(
            len(index),
            slots,
            (torch.cat(tensors),),
            torch.from_numpy(padded),
            None if len(places) == len(padded) else torch.from_numpy(places),
        )

    @property
    def selection(self) -> slice | list[int]:
        """The slots as an index; a slice copies no weights."""
        first, last = self.slots[0], self.slots[-1]
        return slice(first, last + 1) if last - first < len(self.slots) else list(self.slots)


def pack(layer: Any) -> None:
    """Move the adapters of one of vLLM's linear layers into packed buffers."""
    old_a, old_b = layer.lora_a_stacked, layer.lora_b_stacked
    num_slots, _, rank, size = old_a[0].shape
    if any(part.shape[2] != rank for part in old_a) or any(part.shape[3] != rank for part in old_b):
        return  # adapters that are sharded over devices
    num_ranks, num_outputs = rank * len(old_a), sum(part.shape[2] for part in old_b)
    a_SIP = old_a[0].new_zeros(num_slots, size, num_ranks)
    b_SPO = old_b[0].new_zeros(num_slots, num_ranks, num_outputs)
    blocks, end = [], 0
    for at, part in enumerate(old_b):
        start, end = end, end + part.shape[2]
        blocks.append((slice(at * rank, (at + 1) * rank), slice(start, end)))
    new_a = Parts(a_SIP[:, :, ranks].mT.unsqueeze(1) for ranks, _ in blocks)
    new_b = Parts(b_SPO[:, ranks, columns].mT.unsqueeze(1) for ranks, columns in blocks)
    for new, old in zip((*new_a, *new_b), (*old_a, *old_b), strict=True):
        new.copy_(old)
    parts = batch = tuple(blocks)
    if rank <= SMALL_RANK:
        batch = ((slice(0, num_ranks), slice(0, num_outputs)),)
        parts = batch if b_SPO.dtype == torch.bfloat16 else parts
    new_a.packed = new_b.packed = PackedAdapters(a_SIP, b_SPO, parts, batch)
    layer.lora_a_stacked, layer.lora_b_stacked = new_a, new_b


def add_product(y_NO: Tensor, x_NI: Tensor, packed: PackedAdapters, batch: AdapterRows) -> None:
    """Add `x @ A @ B` of each row's adapter to `y`, in place."""
    if batch.num_rows not in (1, len(x_NI)):
        raise RuntimeError(f"vLLM sent {len(x_NI)} rows with the adapters of {batch.num_rows}")
    if not batch.slots:
        return
    if not batch.rows:
        slot = batch.slots[0]
        middle_NP = x_NI @ packed.a_SIP[slot]
        for ranks, columns in packed.blocks:
            y_NO[:, columns].addmm_(middle_NP[:, ranks], packed.b_SPO[slot, ranks, columns])
    elif batch.padded is not None:
        _add_padded(y_NO, x_NI.index_select(0, batch.padded), packed, batch)
    else:
        for slot, rows in zip(batch.slots, batch.rows, strict=True):
            middle_NP = x_NI[rows] @ packed.a_SIP[slot]
            for ranks, columns in packed.blocks:
                product = middle_NP[:, ranks] @ packed.b_SPO[slot, ranks, columns]
                y_NO[:, columns].index_add_(0, rows, product)


def _add_padded(y_NO: Tensor, x_NI: Tensor, packed: PackedAdapters, batch: AdapterRows) -> None:
    """The same for the padded rows of several adapters, as one batch of matrices."""
    chosen = batch.selection
    a_SIP, b_SPO = packed.a_SIP[chosen], packed.b_SPO[chosen]
    middle_SNP = torch.bmm(x_NI.view(len(batch.slots), -1, x_NI.shape[1]), a_SIP)
    for ranks, columns in packed.batch_blocks:
        product = torch.bmm(middle_SNP[:, :, ranks], b_SPO[:, ranks, columns]).flatten(0, 1)
        real = product if batch.places is None else product.index_select(0, batch.places)
        y_NO[:, columns].index_add_(0, batch.rows[0], real)
