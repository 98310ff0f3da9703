"""Activation checkpointing: keep only the inputs of decoder layers, and compute the rest again.

Transformers' `gradient_checkpointing_enable` does nothing for models in `eval()`, which learners
use to disable dropout. So each layer's forward method is wrapped. FSDP's hooks stay outside: the
backward pass gathers a layer's weights before the layer is computed again.

The second computation uses the state of the model at the time of the backward pass. Do not switch
adapters between the forward and the backward pass.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pettingllms.learners.policy_model import decoder_layers


def checkpoint_layers(lm: Any, setting: bool | None, device: torch.device) -> None:
    """Wrap the decoder layers of a model, before it is sharded. `setting`: the value of
    learner.activation_checkpointing."""
    if setting or (setting is None and device.type != "cpu"):
        for layer in decoder_layers(lm):
            checkpoint_layer(layer)


def checkpoint_layer(layer: nn.Module) -> None:
    """Wrap one layer. Passes without gradients and with a KV cache are left as they are: computing
    such a layer again would append to the cache."""
    plain: Callable[..., Any] = layer.forward

    @wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or _has_cache(args, kwargs):
            return plain(*args, **kwargs)
        return checkpoint(plain, *args, use_reentrant=False, **kwargs)

    layer.forward = forward


def _has_cache(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    from transformers import Cache

    return any(isinstance(value, Cache) for value in (*args, *kwargs.values()))
