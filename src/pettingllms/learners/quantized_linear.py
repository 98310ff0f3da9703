"""Linear layers of a frozen base with weights in 8 or 4 bits.

Each block of 64 weights of a row has a scale in bfloat16. 8-bit codes are integers; 4-bit codes are
levels of NF4 (QLoRA, arXiv 2305.14314), two per byte. A product first computes the weights in the
compute dtype, in the forward and again in the backward pass, so they are kept in neither.

Rows are independent of each other: FSDP shards codes and scales by rows, and each rank quantizes
the rows that it reads. The code is the same on CPU and on GPU. It has never run on a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from pettingllms.errors import LearnerError
from pettingllms.learners.policy_model import decoder_layers
from pettingllms.learners.tensor_files import BLOCK as MAX_READ
from pettingllms.learners.tensor_files import local_part

BLOCK = 64
"""Weights that share a scale."""
MAX_CODE = 127
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Levels of 4-bit codes: quantiles of the normal distribution, scaled to [-1, 1]."""
MIN_SHARE = 0.5
"""Share of the parameters of a model's layers that must be in linear layers."""
Read = Callable[[int, Tensor], None]
"""Fills a tensor with the elements of a weight from an index on."""


class QuantizedLinear(nn.Linear):
    """A frozen linear layer whose `weight` has codes instead of numbers."""

    scale: nn.Parameter
    """One number per row and block."""
    pairs: Tensor | None
    """The two 4-bit levels of every byte; None with 8-bit codes."""

    def forward(self, x: Tensor) -> Tensor:
        """The product in the dtype of the input, or in that of autocast."""
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        given = (x, self.weight, self.scale, self.pairs, self.in_features)
        y: Tensor = _Product.apply(*given)  # type: ignore[no-untyped-call]
        bias: Tensor | None = self.bias
        return y if bias is None else y + bias.to(y.dtype)

    def numbers(self, dtype: torch.dtype) -> Tensor:
        """The weight that the codes stand for."""
        return _numbers(self.weight, self.scale, self.pairs, self.in_features, dtype)

    @torch.no_grad()
    def fill(self, read: Read) -> None:
        """Quantize this rank's rows of a weight, a few at a time."""
        codes, start = local_part(self.weight)
        scales, _ = local_part(self.scale)
        first = start // codes.shape[1]
        step = max(1, MAX_READ // self.in_features)
        for at in range(0, len(codes), step):
            rows = slice(at, min(at + step, len(codes)))
            numbers = torch.empty(rows.stop - at, self.in_features, device=codes.device)
            read((first + at) * self.in_features, numbers)
            codes[rows], scales[rows] = _codes(numbers, 8 if self.pairs is None else 4)


def quantize_layers(lm: Any, bits: int) -> None:
    """Quantize the linear layers of a model's decoder layers in place, before adapters are added.

    Embeddings and the output layer stay as they are. Weights on the meta device are quantized when
    they are read; see `sharded_load`."""
    layers = decoder_layers(lm)
    linear = [m for layer in layers for m in layer.modules() if type(m) is nn.Linear]
    count = sum(module.weight.numel() for module in linear)
    total = sum(parameter.numel() for layer in layers for parameter in layer.parameters())
    if count < MIN_SHARE * total:
        raise LearnerError(
            f"learner.base_bits = {bits} quantizes linear layers, but {type(lm).__name__} has only "
            f"{count / total:.0%} of its parameters there, such as models with experts; leave "
            "learner.base_bits out"
        )
    for module in linear:
        _quantize(module, bits)


def _quantize(module: Any, bits: int) -> None:
    """Change the class in place: whatever refers to the module still does."""
    weight = module.weight.detach()
    num_blocks = -(-module.in_features // BLOCK)
    size, device = (module.out_features, num_blocks), weight.device
    dtype = torch.int8 if bits == 8 else torch.uint8
    codes = torch.empty(size[0], num_blocks * BLOCK * bits // 8, dtype=dtype, device=device)
    scale = torch.empty(size, dtype=torch.bfloat16, device=device)
    module.__class__ = QuantizedLinear
    module.weight = nn.Parameter(codes, requires_grad=False)
    module.scale = nn.Parameter(scale, requires_grad=False)
    module.register_buffer("pairs", _pairs() if bits == 4 else None, persistent=False)
    if not weight.is_meta:
        module.to(device)
        module.fill(lambda start, out: copy_elements(weight, start, out))


def copy_elements(weight: Tensor, start: int, out: Tensor) -> None:
    """Fill a tensor with the elements of a whole weight from an index on."""
    out.view(-1).copy_(weight.reshape(-1)[start : start + out.numel()])


class _Product(torch.autograd.Function):
    """The product with a quantized weight; its backward pass computes the weight again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, codes: Tensor, scale: Tensor, pairs: Tensor | None, width: int
    ) -> Tensor:
        ctx.save_for_backward(codes, scale, pairs)
        ctx.width = width
        return functional.linear(x, _numbers(codes, scale, pairs, width, x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        codes, scale, pairs = ctx.saved_tensors
        return grad @ _numbers(codes, scale, pairs, ctx.width, grad.dtype), None, None, None, None


def _numbers(
    codes: Tensor, scale: Tensor, pairs: Tensor | None, width: int, dtype: torch.dtype
) -> Tensor:
    """Weights in a dtype; `width`: columns without the padding to whole blocks."""
    levels = (
        codes.to(dtype) if pairs is None else functional.embedding(codes.int(), pairs.to(dtype))
    )
    blocks = levels.view(*scale.shape, BLOCK) * scale.to(dtype).unsqueeze(-1)
    return blocks.flatten(1)[:, :width]


def _codes(numbers: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The codes of rows of float32 numbers, and the scales of their blocks."""
    blocks = functional.pad(numbers, (0, -numbers.shape[1] % BLOCK)).view(len(numbers), -1, BLOCK)
    largest = blocks.abs().amax(-1) / (MAX_CODE if bits == 8 else 1)
    scale = largest.clamp(min=torch.finfo(torch.bfloat16).tiny).to(torch.bfloat16)
    scaled = blocks / scale.float().unsqueeze(-1)
    if bits == 8:
        return scaled.round_().clamp_(-MAX_CODE, MAX_CODE).to(torch.int8).flatten(1), scale
    levels = torch.tensor(NF4, device=numbers.device)
    nearest = torch.bucketize(scaled, (levels[1:] + levels[:-1]) / 2, out_int32=True).flatten(1)
    return (nearest[:, ::2] * 16 + nearest[:, 1::2]).to(torch.uint8), scale


def _pairs() -> Tensor:
    """The numbers that each byte stands for: its high four bits, then its low ones."""
    levels = torch.tensor(NF4, device="cpu")
    return torch.stack([levels.repeat_interleave(16), levels.repeat(16)], dim=1)
