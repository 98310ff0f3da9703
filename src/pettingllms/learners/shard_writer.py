"""Writes a rank's part of a checkpoint in a thread, from a copy, while training goes on.

Each rank writes its rows as safetensors files (see `policies.tensor_shards`), and hashes them as it
writes. torch.distributed.checkpoint is not used: its own format has a pickled index, and its
safetensors reader maps whole files, while `TensorFiles` reads the bytes of a shard. Never run on a
GPU.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from pettingllms.errors import CheckpointError
from pettingllms.learners.sharding import num_ranks, own_rank
from pettingllms.learners.tensor_files import local_part
from pettingllms.learners.weights import header_of, widest_first
from pettingllms.policies.tensor_shards import MAX_BYTES, SHARDS, shard_name


class OutFile(Protocol):
    """A file that is written from its start; it is on disk once it was left without an error."""

    def __enter__(self) -> "OutFile": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def write(self, content: memoryview) -> None:
        """Append bytes."""
        ...


class Folder(Protocol):
    """A folder of a checkpoint, here or on another machine."""

    def create(self, name: str) -> OutFile:
        """Create a file."""
        ...

    def describe(self, name: str) -> str:
        """Where a file is, for messages."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder that this process reaches."""

    path: Path

    def create(self, name: str) -> OutFile:
        """Create a file."""
        return SyncedFile(self.path / name)

    def describe(self, name: str) -> str:
        """Where a file is, for messages."""
        return str(self.path / name)


class SyncedFile:
    """A new file that is synced to disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def __enter__(self) -> "SyncedFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                os.fsync(self._file.fileno())

    def write(self, content: memoryview) -> None:
        """Append bytes."""
        while content:
            content = content[self._file.write(content) :]


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's part of one file."""

    tensors: dict[str, Tensor]
    ranges: dict[str, tuple[int, list[int]]]
    """The first element and the whole shape of tensors that are here in part."""


@dataclass(frozen=True, slots=True)
class Written:
    """A save that ended."""

    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 of every file, by name."""
    problem: str = ""
    """Why it failed; empty: it did not."""


def own_shard(tensors: Mapping[str, Tensor]) -> Shard:
    """The part of some tensors that this rank writes; rank 0 writes those that are not sharded."""
    shard = Shard({}, {})
    for name, tensor in tensors.items():
        local, first = local_part(tensor)
        if own_rank() and not (isinstance(tensor, DTensor) and local.numel()):
            continue
        shard.tensors[name] = local
        if isinstance(tensor, DTensor):
            shard.ranges[name] = (first, list(tensor.shape))
    return shard


class ShardWriter:
    """Writes the parts of a rank one after another in one thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saves: dict[str, Future[dict[str, str]]] = {}

    def start(
        self,
        name: str,
        folder: Folder,
        files: Mapping[str, Mapping[str, Tensor]],
        others: Mapping[str, bytes],
        background: bool,
    ) -> None:
        """Begin to write this rank's part of sharded tensors, by file; in the background from
        copies in host memory. Rank 0 also writes other files."""
        own = {
            shard_name(file, own_rank(), num_ranks()): own_shard(tensors)
            for file, tensors in files.items()
        }
        if background:
            own = {file: self._copied(shard) for file, shard in own.items()}
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        save = self._thread.submit(_write_all, folder, own, {} if own_rank() else others)
        if not background:
            save.exception()  # waits; `poll` reports it
        self._saves[name] = save

    def poll(self, name: str) -> Written | None:
        """What became of a save; None: it is under way."""
        save = self._saves[name]
        if not save.done():
            return None
        error = save.exception()
        if error is None:
            return Written(save.result())
        kind = "" if isinstance(error, CheckpointError) else f"{type(error).__name__}: "
        return Written(problem=f"{kind}{error}")

    @torch.no_grad()
    def _copied(self, shard: Shard) -> Shard:
        """A copy in host memory; PyTorch reuses pinned memory of earlier copies."""
        pinned = self._device.type == "cuda"
        tensors = {}
        for name, tensor in shard.tensors.items():
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            tensors[name] = copy.copy_(tensor, non_blocking=pinned)
        return Shard(tensors, shard.ranges)


def _write_all(
    folder: Folder, files: Mapping[str, Shard], others: Mapping[str, bytes]
) -> dict[str, str]:
    """Write files; the hash of each."""
    hashes = {}
    for name, content in others.items():
        hashes[name] = _write(folder, name, iter([memoryview(content)]))
    for name, shard in files.items():
        hashes[name] = _write(folder, name, _content(shard))
    return hashes


def _write(folder: Folder, name: str, blocks: Iterator[memoryview]) -> str:
    """Write a file and sync it to disk; its hash."""
    digest = hashlib.sha256()
    try:
        with folder.create(name) as file:
            for block in blocks:
                file.write(block)
                digest.update(block)
    except OSError as error:
        raise CheckpointError(why_not_written(folder.describe(name), error)) from error
    return digest.hexdigest()


def why_not_written(where: str, error: OSError) -> str:
    """A message for a file that cannot be written."""
    advice = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "; free space, lower train.keep_checkpoints, or write elsewhere with --out"
    return f"cannot write {where}: {error.strerror or error}{advice}"


def _content(shard: Shard) -> Iterator[memoryview]:
    """The bytes of a safetensors file, in blocks."""
    order = sorted(shard.tensors.items(), key=widest_first)
    metadata = {SHARDS: json.dumps(shard.ranges)} if shard.ranges else None
    yield memoryview(header_of(order, metadata))
    for _, tensor in order:
        flat = tensor.detach().contiguous().view(-1)
        per_block = MAX_BYTES // flat.element_size()
        for at in range(0, flat.numel(), per_block):
            block: Any = flat[at : at + per_block].cpu().view(torch.uint8).numpy().data
            yield block
