"""Several LoRA adapters on one base model, with PEFT."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from pettingllms.config.policies import LoraPolicy, target_problem, unknown_targets
from pettingllms.errors import LearnerError
from pettingllms.learners.active_adapter import disabled, lora_layers, use_adapter
from pettingllms.learners.merged_adapter import MergedAdapter
from pettingllms.learners.tensor_files import StoredTensor
from pettingllms.learners.weights import tensors_in, to_bytes
from pettingllms.policies.files import ADAPTER_CONFIG, ADAPTER_FILE, Files
from pettingllms.seeds import derive_seed

PARTS = (
    ("projector", (".merger.", ".deepstack_merger_list.", ".connector.", "multi_modal_projector.")),
    ("vision", (".visual.", ".vision_model.", ".vision_tower.")),
)
"""Module names of the parts of VLMs, by model family; more specific names first."""


class Adapters:
    """A base model with one adapter per policy; all are added before the model is sharded."""

    def __init__(self, base: Any, policies: Mapping[str, LoraPolicy], seed: int) -> None:
        from peft import LoraConfig, get_peft_model

        self.model: Any = None
        self._inner = {name: f"adapter{at}" for at, name in enumerate(policies)}
        targets = {name: _targets(base, policy) for name, policy in policies.items()}
        for name, policy in policies.items():
            torch.manual_seed(derive_seed(seed, "adapter", name))
            config = LoraConfig(
                r=policy.rank,
                lora_alpha=policy.alpha,
                lora_dropout=policy.dropout,
                target_modules=targets[name],
                task_type="CAUSAL_LM",
            )
            with _kept_values():
                if self.model is None:
                    self.model = get_peft_model(base, config, adapter_name=self._inner[name])
                else:
                    self.model.add_adapter(self._inner[name], config)
        for layer in self.model.modules():
            if hasattr(layer, "cast_input_dtype_enabled"):
                # PEFT casts inputs to the adapter's float32, and autocast casts them back.
                layer.cast_input_dtype_enabled = base.dtype == torch.float32
        self.model.eval()  # no dropout, except in `dropout`
        self._layers = lora_layers(self.model)
        self.activate(next(iter(policies)))

    def activate(self, policy: str) -> None:
        """Activate one adapter and freeze the others, so ranks do not reduce gradients of adapters
        that do not learn. With FSDP, the model must be resharded before: weights that it gathered
        take `requires_grad` from their shards."""
        use_adapter(self._layers, self._inner[policy])

    def parameters(self, policy: str) -> dict[str, Tensor]:
        """The adapter's weights by their names in the model."""
        part = f".{self._inner[policy]}."
        named = self.model.named_parameters()
        return {name: p for name, p in named if part in name and ".lora_" in name}

    def disabled(self) -> AbstractContextManager[None]:
        """Use the base model without adapters."""
        return disabled(self._layers)

    @contextmanager
    def dropout(self, policy: str, seed: int) -> Iterator[None]:
        """Apply the dropout of a policy's adapter, if it has one, drawn from a seed."""
        own = f".lora_dropout.{self._inner[policy]}"
        layers = [m for n, m in self.model.named_modules() if n.endswith(own)]
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        for layer in layers:
            layer.train()
        try:
            with torch.random.fork_rng(devices):
                torch.manual_seed(seed)
                yield
        finally:
            for layer in layers:
                layer.eval()

    def files(self, policy: str, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
        """The adapter in PEFT's file format."""
        return {
            ADAPTER_FILE: to_bytes(self.plain(policy, weights)),
            ADAPTER_CONFIG: self.settings(policy),
        }

    def plain(self, policy: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights by their names in PEFT's files."""
        inner = f".{self._inner[policy]}."
        return {name.replace(inner, "."): tensor for name, tensor in weights.items()}

    def settings(self, policy: str) -> bytes:
        """The adapter's settings, as PEFT reads them."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.peft_config[self._inner[policy]].save_pretrained(folder)
            config = json.loads((Path(folder) / ADAPTER_CONFIG).read_bytes())
        config["target_modules"].sort()  # a set, whose order differs between processes
        return json.dumps(config, indent=1).encode()

    def merged(self, policy: str) -> MergedAdapter:
        """The base with the policy's adapter added to it."""
        return MergedAdapter(self.model, self._inner[policy])

    def weights(self, policy: str, files: Files) -> dict[str, Tensor | StoredTensor]:
        """The weights in files, by their names in the model."""
        saved = tensors_in(files[ADAPTER_FILE])
        inner = self._inner[policy]
        return {
            name.removesuffix(".weight") + f".{inner}.weight": tensor
            for name, tensor in saved.items()
        }


@contextmanager
def _kept_values() -> Iterator[None]:
    """Keep the initial values of new adapters in float32 on the CPU. PEFT moves an adapter to the
    device and dtype of its layer; on the meta device it has no values, in bfloat16 rounded ones."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    kept: list[tuple[nn.Module, str, nn.Parameter]] = []

    def keep(layer: Any, adapter: str, **_: Any) -> None:
        parts = [getattr(layer, name) for name in layer.adapter_layer_names]
        modules = [part[adapter] for part in parts if adapter in part]
        kept.extend((module, *named) for module in modules for named in module.named_parameters())

    with patch.object(BaseTunerLayer, "_move_adapter_to_device_of_base_layer", keep):
        yield
    for module, name, parameter in kept:
        setattr(module, name, parameter)


def _targets(base: Any, policy: LoraPolicy) -> str | list[str]:
    """The linear layers that the adapter changes, never the output layer."""
    sees = hasattr(base.config, "vision_config")
    if policy.supports_images_by and not sees:
        raise LearnerError(
            f"parts: an adapter cannot change {', '.join(policy.supports_images_by)} of "
            f"'{policy.model}', which is text-only; leave `parts` out, or set "
            'parts = ["language"]'
        )
    if not sees and policy.target_modules == "all-linear":
        return "all-linear"
    layers = [
        name
        for name, module in base.named_modules()
        if isinstance(module, nn.Linear)
        and module is not base.get_output_embeddings()
        and (not sees or _part(name) in policy.parts)
    ]
    if unknown := unknown_targets(policy, layers):
        raise LearnerError(target_problem(unknown, layers))
    if policy.target_modules == "all-linear":
        return layers
    if not sees:
        return policy.target_modules
    ends = tuple(f".{name}" for name in policy.target_modules)
    return [name for name in layers if f".{name}".endswith(ends)]


def _part(name: str) -> str:
    """The part of a VLM that a layer belongs to, by its name."""
    return next((part for part, marks in PARTS if any(m in name for m in marks)), "language")
