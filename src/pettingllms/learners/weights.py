"""Weights and optimizer state as safetensors files, independent of how they are sharded."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

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
def set_tensor(target: Tensor, value: Tensor) -> None:
    """Write a full tensor into a parameter; each rank writes its shard."""
    if target.shape != value.shape:
        raise ValueError(f"got shape {tuple(value.shape)}, expected {tuple(target.shape)}")
    if isinstance(target, DTensor):
        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    target.copy_(value)


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file, copied once. The library's own function copies them twice,
    which for an optimizer's moments takes four times the model's memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[Any] = []
    end = 0
    for name, tensor in sorted(tensors.items(), key=_widest_first):
        part = tensor.contiguous().flatten().view(torch.uint8).numpy()
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end := end + len(part)],
        }
        parts.append(part.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def _widest_first(named: tuple[str, Tensor]) -> tuple[int, str]:
    """A sort key that aligns every tensor to its element size."""
    name, tensor = named
    return -tensor.element_size(), name


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    return load(content)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names and bits, equal if and only if the weights are."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
