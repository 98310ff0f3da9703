"""What both ends of a weight stream agree on: their process group, and the buckets of tensors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pettingllms.config.engines import Dtype

BUCKET_BYTES = 256 * 2**20
"""Bytes that are sent together. A larger tensor is a separate bucket."""
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Link:
    """A process group of one learner's rank 0 and the workers of its engines."""

    rendezvous: str
    """Where members meet: `file://` and a path, or `tcp://` and an address."""
    num_members: int
    timeout: float
    """Seconds that members wait for each other."""
    first: int = 0
    """Rank of the learner, or of an engine's first worker."""


class Entry(NamedTuple):
    """A tensor of a model."""

    name: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The tensors that a learner sends, in order."""

    dtype: Dtype
    """Type of all elements on the wire."""
    entries: tuple[Entry, ...]
    bucket_bytes: int = BUCKET_BYTES

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Manifest":
        """A manifest that was sent as JSON."""
        entries = tuple(Entry(name, tuple(shape)) for name, shape in plain["entries"])
        return cls(plain["dtype"], entries, plain["bucket_bytes"])

    def buckets(self) -> Iterator[list[Entry]]:
        """Whole tensors that are sent together. Those of one block stay together if they fit, so
        that an engine can fuse them as they arrive."""
        room = self.bucket_bytes // ELEMENT_BYTES[self.dtype]
        bucket: list[Entry] = []
        for block in blocks(self.entries):
            parts = [block] if _numel(block) <= room else [[one] for one in block]
            for part in parts:
                if bucket and _numel(bucket) + _numel(part) > room:
                    yield bucket
                    bucket = []
                bucket += part
        if bucket:
            yield bucket


def blocks(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Tensors of the same block of a decoder layer, such as its attention, in the given order."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(block_of(entry.name), []).append(entry)
    return list(found.values())


def block_of(name: str) -> str:
    """The name up to the component after its first number, as in `model.layers.3.mlp`."""
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts) if part.isdigit()), len(parts))
    return ".".join(parts[: at + 2])


def _numel(entries: Sequence[Entry]) -> int:
    return sum(entry.numel for entry in entries)
