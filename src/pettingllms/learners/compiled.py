"""Compiled decoder layers, and attention of token trees for them on CPU.

On CPU a bfloat16 pass spends more time on elementwise operations and attention than on its large
matrix products. Compiled, elementwise operations are fused, and rounded once instead of after each.
The attention is that of `tree_attention` with matrix products in bfloat16: PyTorch's own kernel is
slower there than its float32 one.

R runs in a block, Q tokens of the longest run, K keys of the longest sequence, A attention heads, G
groups of them that share keys, D size of a head.
"""

# ruff: noqa: N803, N806

import os
import shutil
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.policy_model import decoder_layers
from pettingllms.learners.tree_attention import Attend, float32_attention

MIN_PARAMETERS = 100_000_000
"""Smaller models do not gain the time back that compiling takes."""
MAX_GRAPHS = 32
"""Versions of a layer: with and without gradients, adapters, token trees, and several row counts.
PyTorch's default is 8."""
MAX_SCORES = 2**26
"""Attention scores of a block up to which they are kept for the backward pass; more take PyTorch's
kernel, which computes them again."""


def compile_layers(
    lm: Any, setting: bool | None, device: torch.device, dtype: torch.dtype
) -> Attend:
    """Compile the decoder layers of a model, at their first pass; before they are checkpointed or
    sharded. Return the attention that suits them. `setting`: the value of learner.compile. On a GPU
    this has never run."""
    if not (_is_faster(lm, dtype) if setting is None else setting):
        return float32_attention
    if not has_compiler():
        raise LearnerError(
            "learner.compile = true needs a C++ compiler, and neither g++ nor clang++ was found; "
            "install one, or set learner.compile = false"
        )
    torch._dynamo.config.recompile_limit = MAX_GRAPHS  # noqa: SLF001 - its documented place
    for layer in decoder_layers(lm):
        layer.forward = torch.compile(layer.forward, dynamic=True)
    if device.type != "cpu" or dtype != torch.bfloat16:
        return float32_attention
    keep_float32_residuals(lm)
    return bfloat16_attention


def _is_faster(lm: Any, dtype: torch.dtype) -> bool:
    large = sum(parameter.numel() for parameter in lm.parameters()) >= MIN_PARAMETERS
    return dtype == torch.bfloat16 and large and has_compiler()


def has_compiler() -> bool:
    """Whether PyTorch finds a C++ compiler."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def keep_float32_residuals(lm: Any) -> None:
    """Add the outputs of all layers in float32, as autocast does with float32 weights. Sums in
    bfloat16 lose most of what a new adapter adds."""

    def to_float32(_module: Any, _args: Any, embedded: Tensor) -> Tensor:
        return embedded.float()

    lm.get_input_embeddings().register_forward_hook(to_float32)


def bfloat16_attention(
    query_RAQD: Tensor, key_RGKD: Tensor, value_RGKD: Tensor, mask_R1QK: Tensor, scale: float
) -> Tensor:
    """Attention with products in bfloat16; in float32 if there are too many scores to keep."""
    if query_RAQD.shape[1] * mask_R1QK.numel() > MAX_SCORES:
        return float32_attention(query_RAQD, key_RGKD, value_RGKD, mask_R1QK, scale)
    with torch.autocast("cpu", enabled=False):
        return _compiled()(query_RAQD, key_RGKD, value_RGKD, mask_R1QK, scale)


@cache
def _compiled() -> Attend:
    """Compiled once for all layers and models."""
    return torch.compile(_attend, dynamic=True)


def _attend(
    query_RAQD: Tensor, key_RGKD: Tensor, value_RGKD: Tensor, mask_R1QK: Tensor, scale: float
) -> Tensor:
    """Attention with products in bfloat16 and the softmax in float32."""
    R, A, Q, D = query_RAQD.shape
    G, K = key_RGKD.shape[1:3]
    query = (query_RAQD * scale).to(torch.bfloat16).reshape(R * G, A // G * Q, D)
    key, value = (x.to(torch.bfloat16).reshape(R * G, K, D) for x in (key_RGKD, value_RGKD))
    score = torch.bmm(query, key.transpose(1, 2)).view(R, G, A // G, Q, K).float()
    weight = torch.softmax(score + mask_R1QK[:, :, None], -1).to(torch.bfloat16)
    return torch.bmm(weight.view(R * G, A // G * Q, K), value).view(R, A, Q, D)
