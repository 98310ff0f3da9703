"""Adafactor on plain and on sharded parameters (Shazeer & Stern, 2018).

For a matrix it keeps one mean of squared gradients per row and one per column instead of one per
weight, so its state is a few thousandths of the size of AdamW's. `torch.optim.Adafactor` fails on
parameters that FSDP2 shards, because means over columns span the ranks. Here each rank computes
with its rows, and two small sums over the ranks per step complete the columns and the norms.

The learning rate is absolute, as in Transformers with `scale_parameter=False`. Steps relative to
the size of a weight would never move the half of a LoRA adapter that starts at zero.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import zeros as sharded_zeros

MOMENTS = ("row_var", "col_var", "variance", "step")
"""State of a parameter: the first two of a matrix, or the third of a vector, and the last."""
BETA2_DECAY = -0.8
"""The mean of squared gradients forgets by 1 - step ** BETA2_DECAY."""
MAX_RMS = 1.0
"""Root mean square of an update in units of the learning rate, above which it is scaled down."""


class Adafactor(torch.optim.Optimizer):
    """Updates divided by a factored estimate of the root mean square of gradients."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.0, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have gradients, which are overwritten."""
        assert closure is None  # noqa: S101 - gradients are computed before
        groups = self.param_groups
        chosen = [(group, p) for group in groups for p in group["params"] if p.grad is not None]
        parameters = [parameter for _, parameter in chosen]
        updates = self._normalized_gradients(parameters)
        norms = [update.square().sum().reshape(1) for update in updates]
        sum_over_ranks(norms, parameters)
        for (group, parameter), update, norm in zip(chosen, updates, norms, strict=True):
            rms = (norm / parameter.numel()).sqrt() / MAX_RMS
            weight = local(parameter)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.sub_(update.mul_(group["lr"] / rms.clamp(min=1.0)))

    def _normalized_gradients(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Divide this rank's gradients by their estimated root mean squares, in place."""
        gradients = [local(p.grad) for p in parameters if p.grad is not None]
        sums = iter(_column_sums(parameters, gradients))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            state = self._state_of(parameter)
            state["step"] += 1
            mean = next(sums) / parameter.shape[0] if gradient.ndim == 2 else None
            gradient.mul_(_inverse_rms(state, gradient, mean))
        return gradients

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        if not self.state[parameter]:
            self.state[parameter] = empty_state(parameter)
        state: dict[str, Tensor] = self.state[parameter]
        return state


def empty_state(parameter: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first step, sharded like the parameter."""
    state = {"step": torch.zeros(())}
    if parameter.ndim < 2:
        return {**state, "variance": torch.zeros_like(parameter)}
    *lead, rows, width = parameter.shape
    row_var = _zeros(parameter, (*lead, rows, 1))
    if lead:
        return {**state, "row_var": row_var, "col_var": _zeros(parameter, (*lead, 1, width))}
    col_var = torch.zeros((1, width), dtype=parameter.dtype, device=parameter.device)
    return {**state, "row_var": row_var, "col_var": col_var}  # every rank has all columns


def _zeros(parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(parameter, DTensor):
        return torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)
    mesh, placements = parameter.device_mesh, parameter.placements
    assert all(placement.is_shard(0) for placement in placements)  # noqa: S101 - FSDP2's default
    return sharded_zeros(*shape, dtype=parameter.dtype, device_mesh=mesh, placements=placements)


def _column_sums(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """Squared gradients of matrices, summed over the rows of all ranks."""
    sums = [g.square().sum(-2, keepdim=True) for g in gradients if g.ndim == 2]
    sum_over_ranks(sums, [p for p in parameters if p.ndim == 2])
    return sums


def _inverse_rms(state: dict[str, Tensor], gradient: Tensor, column_mean: Tensor | None) -> Tensor:
    """Update the means of squared gradients; one divided by their root, for each weight."""
    share = float(state["step"]) ** BETA2_DECAY
    least = torch.finfo(gradient.dtype).eps
    if gradient.ndim < 2:
        variance = local(state["variance"]).lerp_(gradient.square(), share)
        return variance.clamp(min=least**2).rsqrt_()
    row_var, col_var = local(state["row_var"]), local(state["col_var"])
    row_var.lerp_(gradient.square().mean(-1, keepdim=True), share)
    if column_mean is None:
        column_mean = gradient.square().mean(-2, keepdim=True)
    col_var.lerp_(column_mean, share)
    # The mean of the columns is that of the rows, which a rank does not have.
    estimate = row_var @ col_var / col_var.mean(-1, keepdim=True).clamp_(min=least)
    return estimate.clamp_(min=least**2).rsqrt_()


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor on this rank, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def sum_over_ranks(parts: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
    """Sum the parts that belong to sharded parameters over the ranks, in one call."""
    pairs = zip(parts, parameters, strict=True)
    sharded = [(part, p.device_mesh) for part, p in pairs if isinstance(p, DTensor)]
    if not sharded:
        return
    flat = torch.cat([part.flatten() for part, _ in sharded])
    dist.all_reduce(flat, group=sharded[0][1].get_group())
    sizes = [part.numel() for part, _ in sharded]
    for (part, _), total in zip(sharded, torch.split(flat, sizes), strict=True):
        part.copy_(total.view_as(part))
