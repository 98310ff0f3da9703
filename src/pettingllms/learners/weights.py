"""Weights and optimizer moments as plain tensors and back, whatever they are sharded over."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

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
    """Tensors as a safetensors file."""
    return save(dict(tensors), metadata={"format": "pt"})


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
