"""Log-probs and entropies of tokens from hidden states, without logits of all tokens at once.

Logits of the whole vocabulary are the largest tensor of a pass: 32k tokens of Qwen3 take 20 GB in
float32, several times over with gradients. So tokens go through the output layer in chunks:

- a frozen layer builds the gradients by the hidden states in the forward pass, chunk by chunk; the
  backward pass only scales their rows;
- a trained layer computes each chunk's logits again in the backward pass;
- any other layer (hooks, wrappers, quantized weights) is called per chunk under
  `torch.utils.checkpoint`.

Tokens that fit into one chunk take plain autograd, as do all tokens of models with a small
vocabulary.

N tokens, C tokens of a chunk, H hidden size, V vocabulary.
"""

# ruff: noqa: N803, N806

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pettingllms.learners.chunked_head import FrozenHead, TrainedHead

Compute = Callable[..., tuple[Tensor, Tensor | None]]
CHUNK_BYTES = 2**28
"""Float32 logits of one chunk. With 152k entries in the vocabulary a chunk has 441 tokens, enough
for a matrix product to be bound by arithmetic and not by reading the weight."""
FROZEN_CPU_BYTES = 2**26
"""The same on CPU if the layer is frozen: smaller chunks stay in the cache and take less time. A
trained layer would add to the gradient of its weight more often."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Where PyTorch keeps the hooks of a module."""


def token_logprobs(
    layer: nn.Module,
    hidden_NH: Tensor,
    targets_N: Tensor,
    temperature: float,
    entropy: bool,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs of the target tokens, and entropies of their distributions if asked for.

    `layer`: from hidden states to logits. Hooks that it has in the forward pass must stay until the
    backward pass. With FSDP, call this inside the root's forward, where the weight is gathered.
    `chunk_tokens`: left out, as many as `CHUNK_BYTES` allow."""
    is_trained = any(parameter.requires_grad for parameter in layer.parameters())
    size = chunk_tokens or _chunk_tokens(layer, hidden_NH.device, is_trained)
    if len(hidden_NH) <= size:
        return _plain(layer, hidden_NH, targets_N, temperature, entropy)
    compute: Compute = _plain
    if torch.is_grad_enabled() and (is_trained or hidden_NH.requires_grad):
        if _is_plain_linear(layer):
            head: Any = TrainedHead if is_trained else FrozenHead
            tensors = hidden_NH, layer.weight, layer.bias, targets_N
            out: tuple[Tensor, ...] = head.apply(*tensors, temperature, entropy, size)
            return out[0], out[1] if entropy else None
        compute = partial(checkpoint, _plain, use_reentrant=False)
    chunks = zip(torch.split(hidden_NH, size), torch.split(targets_N, size), strict=True)
    return _joined([compute(layer, *chunk, temperature, entropy) for chunk in chunks])


def _plain(
    layer: nn.Module, hidden_CH: Tensor, targets_C: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logp_CV = torch.log_softmax(layer(hidden_CH).float() / temperature, dim=-1)
    # Not a view of another tensor: FSDP hooks the outputs of its root, and warns of views.
    logp_C = logp_CV[torch.arange(len(targets_C), device=targets_C.device), targets_C]
    return logp_C, -(logp_CV.exp() * logp_CV).sum(-1) if entropy else None


def _joined(parts: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    entropies = [entropy_C for _, entropy_C in parts if entropy_C is not None]
    logp_N = torch.cat([logp_C for logp_C, _ in parts])
    return logp_N, torch.cat(entropies) if entropies else None


def _is_plain_linear(layer: nn.Module) -> bool:
    """Whether the layer computes only what its weight and bias define."""
    own = vars(layer)
    has_hooks = any(own[kind] for kind in HOOKS)
    return type(layer) is nn.Linear and not has_hooks and "forward" not in own


def _chunk_tokens(layer: Any, device: torch.device, is_trained: bool) -> int:
    """Tokens whose logits fit into the bytes of a chunk."""
    # Quantized weights are packed, so their shape does not count logits.
    vocabulary = getattr(layer, "out_features", 0) or layer.weight.shape[0]
    is_small = device.type == "cpu" and not is_trained
    return max(1, (FROZEN_CPU_BYTES if is_small else CHUNK_BYTES) // (4 * vocabulary))
