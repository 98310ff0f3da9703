"""Weights from all ranks to rank 0, tensor by tensor and shard by shard.

No rank ever holds a whole model: rank 0 holds one piece of a tensor of another rank at a time.
Never run on a GPU.
"""

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from pettingllms.learners.sharding import num_ranks, own_rank
from pettingllms.learners.tensor_files import local_part
from pettingllms.learners.weights import describe, header_of, widest_first

EMPTY = torch.empty(0)
PIECE = 2**22
"""Elements of another rank that rank 0 receives at a time."""
PiecesOf = Callable[[str, Tensor], Iterator[Tensor]]
"""Gives the pieces of a named tensor."""


def shards(tensor: Tensor) -> Iterator[Tensor]:
    """The elements of a tensor in order, as flat pieces on its device, which may share memory with
    it.

    All ranks must iterate in the same order; only rank 0 gets any. A tensor that is not sharded is
    equal on all ranks."""
    local, _ = local_part(tensor)
    if not own_rank():
        if local.numel():
            yield local.contiguous().view(-1)
    elif isinstance(tensor, DTensor):
        for part in torch.split(local.contiguous().view(-1), PIECE):
            if part.numel():
                dist.send(part, dst=0)
    if own_rank() or not isinstance(tensor, DTensor):
        return
    for rank in range(1, num_ranks()):
        size = _shard_size(tensor, rank)
        for start in range(0, size, PIECE):
            piece = torch.empty(min(PIECE, size - start), dtype=tensor.dtype, device=local.device)
            dist.recv(piece, src=rank)
            yield piece


def pieces(tensor: Tensor) -> Iterator[Tensor]:
    """What `shards` gives, on the CPU."""
    return (piece.cpu() for piece in shards(tensor))


def collect(
    tensors: Mapping[str, Tensor], pieces_of: PiecesOf = lambda _, tensor: pieces(tensor)
) -> dict[str, Tensor]:
    """Whole tensors on rank 0; nothing on other ranks, which never hold them."""
    found = {}
    for name, tensor in tensors.items():
        parts = list(pieces_of(name, tensor))
        if not own_rank():
            flat = parts[0] if len(parts) == 1 else torch.cat([EMPTY.to(tensor.dtype), *parts])
            found[name] = flat.view(tensor.shape)
    return found


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    pieces_of: PiecesOf = lambda _, tensor: pieces(tensor),
) -> str:
    """Write a safetensors file on rank 0, with the bytes of `to_bytes`.

    All ranks must call this. Returns the `fingerprint` of tensors that have the same dtype."""
    order = sorted(tensors.items(), key=widest_first)
    digest = hashlib.sha256()
    opened: Any = nullcontext() if own_rank() else path.open("wb")
    with opened as file:
        if file:
            file.write(header_of(order))
        for name, tensor in order:
            digest.update(describe(name, tensor))
            for piece in pieces_of(name, tensor):
                content = piece.view(torch.uint8).numpy().data
                file.write(content)
                digest.update(content)
        if file:
            file.flush()
            os.fsync(file.fileno())
    return digest.hexdigest()


def _shard_size(tensor: DTensor, rank: int) -> int:
    """Number of elements on a rank: FSDP2 gives each rank the same number of rows, the last ones
    fewer or none."""
    assert tensor.device_mesh.size() == num_ranks()  # noqa: S101 - one group of ranks
    rows = -(-tensor.shape[0] // num_ranks())
    own = min(rows, max(0, tensor.shape[0] - rank * rows))
    return own * math.prod(tensor.shape[1:])
