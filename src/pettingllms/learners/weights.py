"""Weights and optimizer moments as plain tensors and back, whatever they are sharded over."""

import hashlib
import json
from collections.abc import Iterable, Mapping
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
"""Types of numbers, as safetensors calls them."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def whole(tensor: Tensor) -> Tensor:
    """The tensor in main memory, to be written or read at once: it may be the parameter itself.
    Every rank must call this, in the same order."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu().contiguous()


@torch.no_grad()
def put(target: Tensor, value: Tensor) -> None:
    """Write a whole tensor into a parameter, each rank its own part."""
    if target.shape != value.shape:
        raise ValueError(f"a tensor of shape {tuple(value.shape)} for {tuple(target.shape)}")
    if isinstance(target, DTensor):
        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    target.copy_(value)


def moments_of(optimizer: torch.optim.Optimizer, names: Iterable[str]) -> dict[str, Tensor]:
    """The optimizer's memory of each parameter; nothing before its first step."""
    found: dict[str, Tensor] = {}
    for name, parameter in zip(names, parameters_of(optimizer), strict=True):
        state = optimizer.state.get(parameter, {})
        found |= {f"{moment}.{name}": whole(state[moment]) for moment in MOMENTS if state}
    return found


def put_moments(
    optimizer: torch.optim.Optimizer, names: Iterable[str], saved: Mapping[str, Tensor]
) -> None:
    """Give the optimizer back its memory."""
    for name, parameter in zip(names, parameters_of(optimizer), strict=True):
        if f"step.{name}" not in saved:
            continue
        state = {"step": saved[f"step.{name}"].to(parameter.device, copy=True)}
        for moment in ("exp_avg", "exp_avg_sq"):
            state[moment] = torch.zeros_like(parameter)
            put(state[moment], saved[f"{moment}.{name}"])
        optimizer.state[parameter] = state


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Any]:
    """What the optimizer moves, in order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file, copied once: the library's own way holds all of them twice,
    which for an optimizer's moments is four times the model."""
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
    """An order in which every tensor begins at a multiple of its numbers' size."""
    name, tensor = named
    return -tensor.element_size(), name


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """Tensors of a safetensors file."""
    return load(content)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names and bits: equal exactly if the weights are."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
