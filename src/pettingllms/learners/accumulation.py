"""Gradient accumulation over passes, with one reduction over ranks after the last pass."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

BatchT = TypeVar("BatchT")
MAX_WHOLE_GRADIENTS = 2**32
"""Bytes of gradients that each rank may hold whole. Adapters of a 32B model take 0.5 GB at rank 16;
full models exceed the bound from a billion parameters on."""


def accumulated(model: nn.Module, passes: Sequence[BatchT]) -> Iterator[BatchT]:
    """Yield the passes over which the caller accumulates gradients of the model.

    With FSDP, ranks reduce gradients only in the backward pass of the last one. Until then each
    rank holds whole gradients in float32. If these would exceed MAX_WHOLE_GRADIENTS, ranks reduce
    gradients in every pass and hold only their shards."""
    if not isinstance(model, FSDPModule):
        yield from passes
        return
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    is_small = 4 * sum(parameter.numel() for parameter in trained) <= MAX_WHOLE_GRADIENTS
    for at, one in enumerate(passes):
        is_last = at == len(passes) - 1
        model.set_requires_gradient_sync(is_last or not is_small)
        if is_last:
            _add_zero_gradients(model)
        yield one


def _add_zero_gradients(model: nn.Module) -> None:
    """Give a float32 gradient to parameters that no pass has used so far, such as other adapters.

    In bfloat16, FSDP accumulates gradients in float32, but takes new ones, and zeros of unused
    parameters, in bfloat16. It then rejects the mixture. PyTorch has no public access to these."""
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        for group in module._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001 - see above
            if all(param.unsharded_accumulated_grad is None for param in group.fsdp_params):
                continue
            for param in group.fsdp_params:
                whole = param.unsharded_param
                if whole.requires_grad and param.unsharded_accumulated_grad is None:
                    zeros = torch.zeros(whole.shape, dtype=param.reduce_dtype, device=whole.device)
                    param.unsharded_accumulated_grad = zeros
