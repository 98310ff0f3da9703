"""Switch the adapter of PEFT's LoRA layers without a new name, so that compiled layers stay valid.

PEFT chooses an adapter by its name, and compiled code is valid for one name only: with eight
adapters every layer would be compiled eight times, and PyTorch stops compiling after eight
versions. So each layer has one more entry, `SLOT`, which is always the active one and refers to the
modules of the adapter in use. PyTorch lists shared modules once, under their first name, so names
of parameters, files and FSDP's shards do not change.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

SLOT = "active"
MODULES = ("lora_A", "lora_B", "lora_dropout")
VALUES = ("scaling", "r", "lora_alpha", "use_rslora", "use_dora", "lora_bias")
"""Tables of PEFT's LoRA layers, by adapter."""


def lora_layers(model: nn.Module) -> list[Any]:
    """The layers that have adapters."""
    from peft.tuners.lora.layer import LoraLayer

    return [module for module in model.modules() if isinstance(module, LoraLayer)]


@contextmanager
def disabled(layers: Sequence[Any]) -> Iterator[None]:
    """Let layers compute as the base does, in passes without gradients."""
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def use_adapter(layers: Sequence[Any], adapter: str) -> None:
    """Let layers use one adapter, and freeze the others. A layer without it computes as the base
    does."""
    for layer in layers:
        for name in MODULES:
            modules = getattr(layer, name)
            if SLOT in modules:
                del modules[SLOT]
            if adapter in modules:  # as the last entry: the first one gives shared modules a name
                modules[SLOT] = modules[adapter]
        for name in VALUES:
            values = getattr(layer, name)
            if adapter in values:
                values[SLOT] = values[adapter]
        layer.set_adapter(SLOT)
