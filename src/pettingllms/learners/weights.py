"""Weights and optimizer state as safetensors files, independent of how they are sharded."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor
from torch.distributed.tensor import DTensor

from pettingllms.errors import LearnerError
from pettingllms.learners.tensor_files import StoredTensor, StoredTensors, local_part
from pettingllms.policies.sources import Source
from pettingllms.policies.tensor_shards import Shards, make_header

DTYPE_NAMES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint8: "U8",
}
"""Names of dtypes in safetensors."""


def whole(tensor: Tensor) -> Tensor:
    """The full tensor on CPU, gathered from all ranks, which must call this in the same order. It
    may share memory with the parameter."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu().contiguous()


@torch.no_grad()
def set_tensor(target: Tensor, value: Tensor | StoredTensor) -> None:
    """Write a full tensor into a parameter; each rank writes its shard, and reads no more of a
    file."""
    if isinstance(value, StoredTensor):
        value.fill(target)
        return
    if target.shape != value.shape:
        raise ValueError(f"got shape {tuple(value.shape)}, expected {tuple(target.shape)}")
    local, start = local_part(target)
    local.view(-1).copy_(value.reshape(-1)[start : start + local.numel()])


def load_tensors(parameters: Mapping[str, Tensor], saved: Mapping[str, Any], owner: str) -> None:
    """Write saved tensors into all parameters."""
    if saved.keys() != parameters.keys():
        odd = ", ".join(sorted(saved.keys() ^ parameters.keys())[:3])
        raise LearnerError(f"saved weights of {owner} belong to another model: {odd}")
    for name, parameter in parameters.items():
        set_tensor(parameter, saved[name])


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file, copied once. The library's own function copies them twice,
    which for an optimizer's moments takes four times the model's memory."""
    order = sorted(tensors.items(), key=widest_first)
    parts = (t.contiguous().flatten().view(torch.uint8).numpy().data for _, t in order)
    return b"".join([header_of(order), *parts])


def header_of(
    order: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The start of a safetensors file with these tensors, in this order."""
    return make_header(((n, DTYPE_NAMES[t.dtype], t.shape) for n, t in order), metadata)


def widest_first(named: tuple[str, Tensor]) -> tuple[int, str]:
    """A sort key that aligns every tensor to its element size."""
    name, tensor = named
    return -tensor.element_size(), name


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    return load(content)


def tensors_in(content: bytes | Source | Shards) -> Mapping[str, Any]:
    """The tensors of a safetensors file; if it is not in memory, as StoredTensor where they are not
    scalars."""
    return from_bytes(content) if isinstance(content, bytes) else StoredTensors(content)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names and bits, equal if and only if the weights are."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(describe(name, tensor))
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def describe(name: str, tensor: Tensor) -> bytes:
    """What a fingerprint contains of a tensor besides its bits."""
    return f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
