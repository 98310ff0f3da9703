"""Several LoRA adapters resident on one base, by PEFT."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import LearnerError
from pettingllms.learners.files import ADAPTER_CONFIG, ADAPTER_FILE
from pettingllms.learners.weights import from_bytes, to_bytes
from pettingllms.seeds import derive_seed

PARTS = (
    ("projector", (".merger.", ".deepstack_merger_list.", ".connector.", "multi_modal_projector.")),
    ("vision", (".visual.", ".vision_model.", ".vision_tower.")),
)
"""What the families call the parts of their models, the more exact names first."""


class Adapters:
    """A base with an adapter for each policy; all are added before anything is sharded."""

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
                lora_dropout=0.0,
                target_modules=targets[name],
                task_type="CAUSAL_LM",
            )
            if self.model is None:
                self.model = get_peft_model(base, config, adapter_name=self._inner[name])
            else:
                self.model.add_adapter(self._inner[name], config)
        self._active = next(iter(policies))
        self.activate(self._active)

    def activate(self, policy: str) -> None:
        """Let one adapter speak. PEFT then freezes the others; which parameters an optimizer
        moves is the optimizer's business, and FSDP wants the same ones to need gradients always."""
        self._active = policy
        self.model.set_adapter(self._inner[policy])
        for name in self._inner:
            for parameter in self.parameters(name).values():
                parameter.requires_grad_(True)

    def parameters(self, policy: str) -> dict[str, Tensor]:
        """The adapter's weights by name, as the model calls them."""
        part = f".{self._inner[policy]}."
        named = self.model.named_parameters()
        return {name: p for name, p in named if part in name and ".lora_" in name}

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """The base alone."""
        with self.model.disable_adapter():
            yield
        self.activate(self._active)

    def files(self, policy: str, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
        """The adapter as PEFT writes it."""
        inner = f".{self._inner[policy]}."
        plain = {name.replace(inner, "."): tensor for name, tensor in weights.items()}
        with tempfile.TemporaryDirectory() as folder:
            self.model.peft_config[self._inner[policy]].save_pretrained(folder)
            config = json.loads((Path(folder) / ADAPTER_CONFIG).read_bytes())
        config["target_modules"].sort()  # a set, so written in another order by every process
        return {
            ADAPTER_FILE: to_bytes(plain),
            ADAPTER_CONFIG: json.dumps(config, indent=1).encode(),
        }

    def weights(self, policy: str, files: Mapping[str, bytes]) -> dict[str, Tensor]:
        """The weights of files, by the names that the model has for them."""
        saved = from_bytes(files[ADAPTER_FILE])
        inner = self._inner[policy]
        return {
            name.removesuffix(".weight") + f".{inner}.weight": tensor
            for name, tensor in saved.items()
        }


def _targets(base: Any, policy: LoraPolicy) -> str | list[str]:
    """The linear layers that the adapter is laid over. The last one, which gives the logits, is
    never among them."""
    if not hasattr(base.config, "vision_config"):
        if policy.supports_images_by:
            raise LearnerError(
                f"an adapter is to be laid over {', '.join(policy.supports_images_by)} of "
                f"'{policy.model}', "
                'which only reads; leave `parts` out, or set parts = ["language"]'
            )
        return "all-linear"
    return [
        name
        for name, module in base.named_modules()
        if isinstance(module, nn.Linear)
        and module is not base.get_output_embeddings()
        and _part(name) in policy.parts
    ]


def _part(name: str) -> str:
    """The part of a model that sees in which a layer of that name is."""
    return next((part for part, marks in PARTS if any(m in name for m in marks)), "language")
