"""Reads safetensors files by byte range, straight into the memory of a tensor.

The library maps a file into memory, and the pages that it touches count as the process's memory.
Here a rank reads only the bytes of its shard, so its memory follows the shard.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

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
    """Where a tensor is in a file."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    """First byte in the file."""

    @property
    def num_elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)


class TensorFiles:
    """The tensors of one or several safetensors files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.entries: dict[str, Entry] = {}
        for path in paths:
            self.entries |= _entries(path)

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
        size = entry.dtype.itemsize
        if flat.dtype == entry.dtype and flat.device.type == "cpu":
            _read_exactly(entry, entry.start + start * size, flat)
            return
        block = torch.empty(min(BLOCK, flat.numel()), dtype=entry.dtype)
        for at in range(0, flat.numel(), BLOCK):
            part = block[: flat.numel() - at]
            _read_exactly(entry, entry.start + (start + at) * size, part)
            flat[at : at + part.numel()].copy_(part)

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

    def __init__(self, path: Path) -> None:
        self._files = TensorFiles([path])

    def __getitem__(self, name: str) -> Any:
        entry = self._files.entries[name]
        return StoredTensor(self._files, name) if entry.shape else self._files.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files.entries)

    def __len__(self) -> int:
        return len(self._files.entries)


def _read_exactly(entry: Entry, start: int, out: Tensor) -> None:
    """Read bytes into the memory of a flat tensor on the CPU."""
    if not out.numel():
        return
    left = out.view(torch.uint8).numpy().data
    with entry.path.open("rb", buffering=0) as file:
        while left:
            count = os.preadv(file.fileno(), [left], start)
            if not count:
                end = start + len(left)
                raise OSError(f"{entry.path} ends before byte {end}; is it truncated?")
            start, left = start + count, left[count:]


def _entries(path: Path) -> dict[str, Entry]:
    """The header of a file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= size - 8:
            raise OSError(f"{path} is not a safetensors file: its header has {length} bytes")
        header: Mapping[str, Any] = json.loads(file.read(length))
    found = {}
    for name, given in header.items():
        if name == "__metadata__":
            continue
        if given["dtype"] not in DTYPES:
            raise OSError(f"{path}: {name} has dtype {given['dtype']}, which is not supported")
        start, end = (8 + length + at for at in given["data_offsets"])
        entry = Entry(path, DTYPES[given["dtype"]], tuple(given["shape"]), start)
        if end - start != entry.num_elements * entry.dtype.itemsize or end > size:
            raise OSError(f"{path}: {name} has wrong offsets; is the file truncated?")
        found[name] = entry
    return found
