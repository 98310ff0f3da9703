"""Reads safetensors files by byte range, straight into the memory of a tensor.

The library maps a file into memory, and the pages that it touches count as the process's memory.
Here a rank reads only the bytes of its shard, so its memory follows the shard.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from pettingllms.policies.sources import Source, read_exactly
from pettingllms.policies.tensor_shards import Shards, Stored, parts_of, whole_shape

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Dtypes by their names in safetensors."""
BLOCK = 4 * 2**20
"""Elements that are read at once if they are cast or moved to a device."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in one file, or in parts in several."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: tuple[Stored, ...]
    """Ranges of its elements, in their order."""

    @property
    def num_elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)


class TensorFiles:
    """The tensors of one or several safetensors files, each of which may be in parts."""

    def __init__(self, files: Iterable[Source | Shards]) -> None:
        self.entries: dict[str, Entry] = {}
        for file in files:
            shards = file if isinstance(file, Shards) else Shards((file,))
            self.entries |= {name: _entry(parts) for name, parts in parts_of(shards).items()}

    def keys(self) -> Iterable[str]:
        """Names of the tensors."""
        return self.entries.keys()

    def read(self, name: str) -> Tensor:
        """A whole tensor, in the dtype of the file."""
        entry = self.entries[name]
        out = torch.empty(entry.shape, dtype=entry.dtype)
        self.read_elements(name, 0, out)
        return out

    @torch.no_grad()
    def fill(self, name: str, target: Tensor) -> None:
        """Read a tensor into a parameter of equal shape; each rank reads its shard."""
        shape = self.entries[name].shape
        if tuple(target.shape) != shape:
            raise ValueError(f"{name}: got shape {shape}, expected {tuple(target.shape)}")
        local, start = local_part(target)
        self.read_elements(name, start, local)

    def read_elements(self, name: str, start: int, out: Tensor) -> None:
        """Fill a contiguous tensor with the elements from `start` on, cast to its dtype."""
        entry, flat = self.entries[name], out.detach().view(-1)
        end = start + flat.numel()
        for part in entry.parts:
            low, high = max(start, part.first), min(end, part.first + part.num_elements)
            if low < high:
                _read_range(entry.dtype, part, low - part.first, flat[low - start : high - start])

    def same_bits(self, one: str, other: str) -> bool:
        """Whether two tensors have the same dtype, shape and bits."""
        first, second = self.entries[one], self.entries[other]
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return False
        for at in range(0, first.num_elements, BLOCK):
            count = min(BLOCK, first.num_elements - at)
            parts = [torch.empty(count, dtype=first.dtype) for _ in range(2)]
            for name, part in zip((one, other), parts, strict=True):
                self.read_elements(name, at, part)
            if not torch.equal(*(part.view(torch.uint8) for part in parts)):
                return False
        return True


def local_part(target: Tensor) -> tuple[Tensor, int]:
    """This rank's elements of a parameter, and the index of the first one in the flattened whole.

    FSDP2 shards the first dimension, so a shard is one contiguous range."""
    if not isinstance(target, DTensor):
        return target.detach(), 0
    with torch.no_grad():
        local = target.to_local()
    mesh, placements = target.device_mesh, target.placements
    shape, offset = compute_local_shape_and_global_offset(target.shape, mesh, placements)
    assert shape[1:] == tuple(target.shape[1:])  # noqa: S101 - sharded by rows
    assert local.shape == shape  # noqa: S101 - without FSDP's padding
    start = offset[0] * math.prod(shape[1:]) if local.numel() else 0
    return local, start


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file, which is read when it is written into a parameter."""

    files: TensorFiles
    name: str

    def fill(self, target: Tensor) -> None:
        """Read the tensor into a parameter of equal shape; each rank reads its shard."""
        self.files.fill(self.name, target)


class StoredTensors(Mapping[str, Any]):
    """The tensors of a safetensors file by name: scalars as tensors, others as StoredTensor."""

    def __init__(self, file: Source | Shards) -> None:
        self._files = TensorFiles([file])

    def __getitem__(self, name: str) -> Any:
        entry = self._files.entries[name]
        return StoredTensor(self._files, name) if entry.shape else self._files.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files.entries)

    def __len__(self) -> int:
        return len(self._files.entries)


def _read_range(dtype: torch.dtype, part: Stored, start: int, out: Tensor) -> None:
    """Fill a flat tensor with elements of a file from `start` on, cast to its dtype."""
    if out.dtype == dtype and out.device.type == "cpu":
        _read(part, start, out)
        return
    block = torch.empty(min(BLOCK, out.numel()), dtype=dtype)
    for at in range(0, out.numel(), BLOCK):
        some = block[: out.numel() - at]
        _read(part, start + at, some)
        out[at : at + some.numel()].copy_(some)


def _read(part: Stored, start: int, out: Tensor) -> None:
    """Read elements into the memory of a flat tensor on the CPU, without a cast."""
    left = out.view(torch.uint8).numpy().data
    read_exactly(part.source, part.start + start * out.element_size(), left)


def _entry(parts: Sequence[Stored]) -> Entry:
    return Entry(DTYPES[parts[0].dtype], whole_shape(parts[0]), tuple(parts))
