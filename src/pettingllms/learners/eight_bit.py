"""AdamW with moments in 8 bits, by torchao, and how they are saved.

Moments are saved as floats in the format of AdamW, because blocks of codes with one scale each
follow the shards. Never run on a GPU. Training, saving and loading were run on CPU with torchao
0.17, with one and with two ranks; compiling the update takes a minute per shape there.
"""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from pettingllms.learners.adafactor import local
from pettingllms.learners.weights import set_tensor


def make_adamw(
    groups: list[dict[str, Any]], betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    """The optimizer. Tensors with fewer than 4096 numbers per rank keep float32 moments."""
    from torchao.optim import AdamW8bit

    made: torch.optim.Optimizer = AdamW8bit(groups, betas=betas, eps=eps)
    return made


def empty_state(optimizer: Any, parameter: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first step."""
    signed = {"exp_avg": True, "exp_avg_sq": False}
    new = optimizer._new_buffer  # noqa: SLF001 - else a step must be made and compiled
    return {
        "step": torch.zeros(()),
        **{name: new(parameter, sign) for name, sign in signed.items()},
    }


def as_floats(tensor: Tensor) -> Tensor:
    """A moment in 8 bits as floats, sharded as before; other tensors as they are."""
    own: Any = local(tensor.detach())
    if not hasattr(own, "codes"):
        return tensor
    floats: Tensor = own.dequantize()
    if not isinstance(tensor, DTensor):
        return floats
    mesh, placements = tensor.device_mesh, tensor.placements
    return DTensor.from_local(
        floats, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


@torch.no_grad()
def set_state(tensor: Tensor, value: Tensor) -> None:
    """Write a full tensor into state, in 8 bits if the state is."""
    own: Any = local(tensor)
    if not hasattr(own, "codes"):
        set_tensor(tensor, value)
        return
    floats = as_floats(tensor)
    set_tensor(floats, value)
    codes, scale = quantized(local(floats), own.qmap, own.block_size)
    own.codes.copy_(codes)
    own.scale.copy_(scale)


def quantized(floats: Tensor, levels: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """The nearest levels of numbers, and the scale of each block.

    The lowest level need not be minus the highest, so the scale follows from both ends. Numbers
    that were quantized before keep their codes.
    """
    blocks = floats.reshape(-1, block_size)
    scale = blocks.amax(1) / levels.max()
    if levels.min() < 0:
        scale = torch.maximum(scale, blocks.amin(1) / levels.min())
    scaled = blocks / scale.clamp(min=torch.finfo(scale.dtype).tiny).unsqueeze(1)
    borders = (levels[1:] + levels[:-1]) / 2
    codes = torch.bucketize(scaled, borders).to(torch.uint8)
    return codes.view(floats.shape), scale
