"""Safetensors files of which each rank wrote its rows, and how they become one file again.

A rank writes the rows that FSDP2 gave it, which are one range of elements of each tensor. The
metadata of its file has the first element and the whole shape of each such tensor. Tensors without
an entry there are whole; rank 0 writes them. Nothing is pickled, and any number of ranks can read
the ranges that they need.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pettingllms.errors import CheckpointError
from pettingllms.policies.sources import Source, read_bytes, read_exactly, size_of

WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per element of the dtypes of safetensors."""
SHARDS = "shards"
"""Entry of a file's metadata with the tensors that it has only in part."""
MAX_BYTES = 16 * 2**20
"""Bytes that are copied at once."""
_SHARD = re.compile(r"(?P<stem>.+)\.rank-(?P<rank>\d+)-of-(?P<count>\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a tensor, or a range of its elements, is in a file."""

    source: Source
    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte in the file."""
    first: int = 0
    """Index of its first element in the flattened whole."""
    whole: tuple[int, ...] | None = None
    """Shape of the whole tensor, if this is a range of it."""

    @property
    def num_elements(self) -> int:
        """Number of elements in this file."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Shards:
    """One safetensors file in parts, in the order of ranks."""

    parts: tuple[Source, ...]


def shard_name(name: str, rank: int, num_ranks: int) -> str:
    """The name of a rank's part of a file; the file's own name if there is one rank."""
    if num_ranks == 1:
        return name
    return f"{name.removesuffix('.safetensors')}.rank-{rank}-of-{num_ranks}.safetensors"


def grouped(files: Mapping[str, Source]) -> dict[str, Any]:
    """Files by name, where the parts of one file become one entry of type Shards."""
    found: dict[str, Any] = {}
    parts: dict[str, dict[int, Source]] = {}
    for name, source in files.items():
        match = _SHARD.fullmatch(name)
        if match is None:
            found[name] = source
            continue
        whole = f"{match['stem']}.safetensors"
        parts.setdefault(whole, {})[int(match["rank"])] = source
        if len(parts[whole]) == int(match["count"]):
            found[whole] = Shards(tuple(parts[whole][rank] for rank in sorted(parts[whole])))
    for whole, some in parts.items():
        if whole not in found:
            raise CheckpointError(
                f"{whole} is incomplete: found the parts of ranks {sorted(some)} only, beside "
                f"{next(iter(some.values()))}"
            )
    return found


def make_header(
    tensors: Iterable[tuple[str, str, Iterable[int]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The start of a safetensors file with tensors of a name, dtype and shape, in this order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    end = 0
    for name, dtype, shape in tensors:
        sizes = list(shape)
        offsets = [end, end := end + math.prod(sizes) * WIDTHS[dtype]]
        header[name] = {"dtype": dtype, "shape": sizes, "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(source: Source) -> dict[str, Stored]:
    """The tensors of a safetensors file; OSError if its header is not consistent."""
    size = size_of(source)
    length = int.from_bytes(read_bytes(source, 0, 8), "little") if size >= 8 else 0
    if not 0 < length <= size - 8:
        raise OSError(f"{source} is not a safetensors file: its header has {length} bytes")
    header: dict[str, Any] = json.loads(read_bytes(source, 8, length))
    in_part: dict[str, Any] = json.loads(header.pop("__metadata__", {}).get(SHARDS, "{}"))
    found = {}
    for name, given in header.items():
        if given["dtype"] not in WIDTHS:
            raise OSError(f"{source}: {name} has dtype {given['dtype']}, which is not supported")
        start, end = (8 + length + at for at in given["data_offsets"])
        first, whole = in_part.get(name, (0, None))
        shape = None if whole is None else tuple(whole)
        one = Stored(source, given["dtype"], tuple(given["shape"]), start, first, shape)
        if end - start != one.num_elements * WIDTHS[one.dtype] or end > size:
            raise OSError(f"{source}: {name} has wrong offsets; is the file truncated?")
        found[name] = one
    return found


def parts_of(shards: Shards) -> dict[str, list[Stored]]:
    """The ranges of every tensor in their order; OSError if some elements are missing."""
    found: dict[str, list[Stored]] = {}
    for source in shards.parts:
        for name, one in read_header(source).items():
            found.setdefault(name, []).append(one)
    for name, parts in found.items():
        parts.sort(key=lambda one: one.first)
        end = 0
        for one in parts:
            if one.first != end or whole_shape(one) != whole_shape(parts[0]):
                raise OSError(f"{one.source}: '{name}' begins at element {one.first}, not {end}")
            end += one.num_elements
        if end != math.prod(whole_shape(parts[0])):
            raise OSError(f"{parts[-1].source}: '{name}' ends at element {end}; a part is missing")
    return found


def whole_shape(one: Stored) -> tuple[int, ...]:
    """Shape of the whole tensor."""
    return one.shape if one.whole is None else one.whole


def merged(shards: Shards) -> Iterator[bytes]:
    """The bytes of the file that one rank would have written, a few at a time."""
    parts = parts_of(shards)
    order = sorted(parts, key=lambda name: (-WIDTHS[parts[name][0].dtype], name))
    yield make_header((n, parts[n][0].dtype, whole_shape(parts[n][0])) for n in order)
    for one in (one for name in order for one in parts[name]):
        size = one.num_elements * WIDTHS[one.dtype]
        for at in range(0, size, MAX_BYTES):
            block = bytearray(min(MAX_BYTES, size - at))
            read_exactly(one.source, one.start + at, memoryview(block))
            yield bytes(block)
