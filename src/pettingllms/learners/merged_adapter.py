"""A LoRA adapter added to its base, for engines that sample with merged weights.

The sum is computed in float32, one tensor at a time. In bfloat16 most sums would round to the base.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pettingllms.learners.weight_stream import collect, pieces

BASE = ".base_layer."


class LowRank(NamedTuple):
    """What an adapter adds to a layer: scaling * B A."""

    a: Tensor
    b: Tensor
    scaling: float


class MergedAdapter:
    """The weights of a base with one of its adapters, by the names in the base's files."""

    def __init__(self, model: Any, adapter: str) -> None:
        base = model.get_base_model()
        self.tensors: dict[str, Tensor] = {
            name.replace(BASE, "."): tensor
            for name, tensor in base.named_parameters()
            if ".lora_" not in name
        }
        self._added = {
            f"{name}.weight": LowRank(
                layer.lora_A[adapter].weight, layer.lora_B[adapter].weight, layer.scaling[adapter]
            )
            for name, layer in base.named_modules()
            if adapter in getattr(layer, "lora_A", ())
        }

    @torch.no_grad()
    def pieces(self, name: str, tensor: Tensor) -> Iterator[Tensor]:
        """The merged tensor, as `weight_stream.pieces` gives it: all ranks call, rank 0 gets it."""
        if name not in self._added:
            yield from pieces(tensor)
            return
        added = self._added[name]
        found = collect({"base": tensor, "a": added.a, "b": added.b})
        if found:
            parts = (found[part].float() for part in ("base", "b", "a"))
            yield torch.addmm(*parts, alpha=added.scaling).view(-1)
