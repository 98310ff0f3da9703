"""Autograd functions of an output layer that is applied in chunks of tokens.

N tokens, C tokens of a chunk, H hidden size, V vocabulary.
"""

# ruff: noqa: N803, N806

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


class FrozenHead(torch.autograd.Function):
    """Log-probs and entropies under a weight without gradient.

    The gradients of a token's log-prob and entropy by its hidden state depend on the loss only by a
    factor. So the forward pass stores these gradients, and no logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        entropy: bool,
        size: int,
    ) -> tuple[Tensor, ...]:
        """Compute chunk by chunk, gradients included."""
        ctx.set_materialize_grads(False)
        linear = Linear(weight_VH, bias_V)
        out = _outputs(hidden_NH, entropy)
        rows = [torch.empty_like(hidden_NH, dtype=linear.dtype) for _ in out]
        for at, chunk in _filled(out, linear, hidden_NH, targets_N, temperature, size):
            for index, row_NH in enumerate(rows):
                row_NH[at] = linear.by_hidden(chunk.gradient_of(index))
        ctx.save_for_backward(*rows)
        ctx.size, ctx.dtype = size, hidden_NH.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_N: Tensor | None) -> tuple[Tensor | None, ...]:
        """Scale the stored rows: per chunk, because the products are float32."""
        grad_NH = torch.empty_like(ctx.saved_tensors[0], dtype=ctx.dtype)
        pairs = [(r, g) for r, g in zip(ctx.saved_tensors, grads_N, strict=True) if g is not None]
        for at in chunks(len(grad_NH), ctx.size):
            grad_NH[at] = sum(row_NH[at] * grad_N[at, None] for row_NH, grad_N in pairs)
        return grad_NH, *[None] * 6


class TrainedHead(torch.autograd.Function):
    """Log-probs and entropies under a weight with gradient; logits are computed twice.

    The gradient of the weight is summed over chunks in float32, whatever the compute dtype.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature: float,
        entropy: bool,
        size: int,
    ) -> tuple[Tensor, ...]:
        """Compute chunk by chunk, and keep only the inputs."""
        ctx.set_materialize_grads(False)
        linear = Linear(weight_VH, bias_V)
        out = _outputs(hidden_NH, entropy)
        for _ in _filled(out, linear, hidden_NH, targets_N, temperature, size):
            pass  # no gradients yet
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N)
        ctx.temperature, ctx.size, ctx.dtype = temperature, size, linear.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logp_N: Tensor | None, grad_entropy_N: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        """Compute each chunk's logits again, and all gradients from them."""
        *inputs, targets_N = ctx.saved_tensors
        _, weight_VH, bias_V = inputs
        linear = Linear(weight_VH, bias_V, ctx.dtype)
        if grad_logp_N is None:
            grad_logp_N = torch.zeros(len(targets_N), device=targets_N.device)
        sums = InputGradients(linear, inputs, ctx.needs_input_grad[:3])
        for at in chunks(len(targets_N), ctx.size):
            logits_CV = linear.logits(inputs[0][at])
            by_entropy_C = None if grad_entropy_N is None else grad_entropy_N[at]
            chunk = Chunk(logits_CV, targets_N[at], ctx.temperature, by_entropy_C is not None)
            grad_CV = chunk.gradient(grad_logp_N[at], by_entropy_C)
            del chunk, logits_CV
            sums.add(at, grad_CV)
        return *sums.results(), *[None] * 4


class Linear:
    """A linear layer without autograd, in the dtype that autocast would use."""

    def __init__(
        self, weight_VH: Tensor, bias_V: Tensor | None, dtype: torch.dtype | None = None
    ) -> None:
        kind = weight_VH.device.type
        if dtype is None:
            is_cast = torch.is_autocast_enabled(kind)
            dtype = torch.get_autocast_dtype(kind) if is_cast else weight_VH.dtype
        self.dtype = dtype
        # Autocast would cast a frozen weight again for every chunk.
        self._weight_VH = weight_VH.to(dtype)
        self._bias_V = None if bias_V is None else bias_V.to(dtype)
        self._plain = torch.autocast(kind, enabled=False)

    def logits(self, hidden_CH: Tensor) -> Tensor:
        """Logits of a chunk, in float32."""
        with self._plain:
            return functional.linear(
                hidden_CH.to(self.dtype), self._weight_VH, self._bias_V
            ).float()

    def by_hidden(self, grad_CV: Tensor) -> Tensor:
        """The gradient by the hidden states, given that by the logits."""
        with self._plain:
            return grad_CV.to(self.dtype) @ self._weight_VH

    def add_by_weight(self, grad_CV: Tensor, hidden_CH: Tensor, grad_VH: Tensor) -> None:
        """Add the gradient by the weight to a float32 tensor."""
        with self._plain:
            grad_VC, hidden_CH = grad_CV.to(self.dtype).T, hidden_CH.to(self.dtype)
            if self.dtype == torch.float32:
                grad_VH.addmm_(grad_VC, hidden_CH)
            else:
                grad_VH += grad_VC @ hidden_CH


class InputGradients:
    """The gradients by hidden states, weight and bias of a linear layer, chunk by chunk. Those of
    weight and bias are summed in float32."""

    def __init__(
        self, linear: Linear, inputs: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> None:
        self._linear, self._inputs = linear, inputs
        wanted = [x if is_needed else None for x, is_needed in zip(inputs, needed, strict=True)]
        self._grad_NH, self._grad_VH, self._grad_V = (
            None if x is None else torch.zeros_like(x, dtype=dtype)
            for x, dtype in zip(wanted, (None, torch.float32, torch.float32), strict=True)
        )

    def add(self, at: slice, grad_CV: Tensor) -> None:
        """Add the gradients of a chunk, given that by its logits."""
        hidden_NH = self._inputs[0]
        assert hidden_NH is not None  # noqa: S101 - only a bias can be missing
        if self._grad_NH is not None:
            self._grad_NH[at] = self._linear.by_hidden(grad_CV)
        if self._grad_VH is not None:
            self._linear.add_by_weight(grad_CV, hidden_NH[at], self._grad_VH)
        if self._grad_V is not None:
            self._grad_V += grad_CV.sum(0)

    def results(self) -> tuple[Tensor | None, ...]:
        """The gradients in the dtypes of the inputs; None for those that are not needed."""
        grads = (self._grad_NH, self._grad_VH, self._grad_V)
        return tuple(
            None if grad is None or x is None else grad.to(x.dtype)
            for grad, x in zip(grads, self._inputs, strict=True)
        )


class Chunk:
    """The distributions of some tokens, and gradients by their logits, all float32."""

    def __init__(
        self, logits_CV: Tensor, targets_C: Tensor, temperature: float, entropy: bool
    ) -> None:
        """Overwrites the logits."""
        self._targets_C1, self._temperature = targets_C[:, None], temperature
        self._logp_CV = torch.log_softmax(logits_CV.div_(temperature), dim=-1)
        self._p_CV = torch.exp(self._logp_CV, out=logits_CV)
        self._logp_C = self._logp_CV.gather(1, self._targets_C1).squeeze(1)
        self._entropy_C = -(self._p_CV * self._logp_CV).sum(-1) if entropy else None

    @property
    def values(self) -> tuple[Tensor, ...]:
        """Log-probs of the targets, and entropies if asked for."""
        if self._entropy_C is None:
            return (self._logp_C,)
        return self._logp_C, self._entropy_C

    def gradient_of(self, index: int) -> Tensor:
        """Gradient of one of the values by the logits."""
        ones_C, zeros_C = torch.ones_like(self._logp_C), torch.zeros_like(self._logp_C)
        return self.gradient(zeros_C, ones_C) if index else self.gradient(ones_C, None)

    def gradient(self, by_logp_C: Tensor, by_entropy_C: Tensor | None) -> Tensor:
        """Gradient by the logits, given those by log-probs and entropies.

        With z = logits / T: d logp / dz = onehot - p, and d entropy / dz = -p (log p + entropy)."""
        if by_entropy_C is None:
            grad_CV = self._p_CV * by_logp_C[:, None]
        else:
            assert self._entropy_C is not None  # noqa: S101 - it was asked for
            grad_CV = self._logp_CV + self._entropy_C[:, None]
            grad_CV.mul_(by_entropy_C[:, None]).add_(by_logp_C[:, None]).mul_(self._p_CV)
        grad_CV.neg_().scatter_add_(1, self._targets_C1, by_logp_C[:, None])
        return grad_CV.div_(self._temperature)


def chunks(num_tokens: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` tokens."""
    for start in range(0, num_tokens, size):
        yield slice(start, min(start + size, num_tokens))


def _filled(
    out: Sequence[Tensor],
    linear: Linear,
    hidden_NH: Tensor,
    targets_N: Tensor,
    temperature: float,
    size: int,
) -> Iterator[tuple[slice, Chunk]]:
    """Write log-probs and, if there is a tensor for them, entropies; yields each chunk."""
    for at in chunks(len(hidden_NH), size):
        chunk = Chunk(linear.logits(hidden_NH[at]), targets_N[at], temperature, len(out) > 1)
        for out_N, value_C in zip(out, chunk.values, strict=True):
            out_N[at] = value_C
        yield at, chunk


def _outputs(hidden_NH: Tensor, entropy: bool) -> tuple[Tensor, ...]:
    """Tensors for log-probs and, if asked for, entropies."""
    shape, device = hidden_NH.shape[:1], hidden_NH.device
    return tuple(torch.empty(shape, device=device) for _ in range(1 + entropy))
