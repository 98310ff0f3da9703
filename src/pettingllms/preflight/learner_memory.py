"""Memory of one rank of a learner or critic, on its device and on its host.

Weights, gradients and optimizer state are there all the time. A pass adds to them; its largest
moment is at the output layer, in the backward pass of a layer, or where the gradients outside of
the layers are reduced over ranks. Optimizer state that is offloaded is there only in an update. The
estimate is the largest of these moments.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.policies import LoraPolicy
from pettingllms.policies import ModelGroup, critic_resources, group_resources
from pettingllms.preflight.activations import FLOAT, Activations
from pettingllms.preflight.estimates import (
    Device,
    Part,
    compute_width,
    parameters_part,
    pass_tokens,
    total,
)
from pettingllms.preflight.model_size import ModelSize
from pettingllms.runtime.resources import GIB

MOMENTS: Mapping[str, float] = {"adamw": 8, "adamw_8bit": 2.03, "adafactor": 0.01}
"""Bytes of optimizer state per trained parameter. 8-bit moments have a scale per block; Adafactor
keeps row and column sums."""
BASE_BYTES: Mapping[int, float] = {8: 1 + 1 / 32, 4: 1 / 2 + 1 / 32}
"""Bytes per weight of quantized linear layers: a code, and a scale in bfloat16 for 64 of them."""
GATHERED_LAYERS = 2
"""Layers that FSDP has gathered at once: the current and the prefetched one."""
CUDA_CONTEXT = 1.5 * GIB
"""CUDA context, library workspaces and NCCL buffers of a process. Never measured here."""
HOST_PROCESS = 2 * GIB
"""Host memory of a learner process with CUDA libraries, without weights. Never measured here."""
SHARDED_FILES = True
"""Whether ranks load their own shard, and rank 0 publishes and saves one tensor at a time. If not,
every rank loads the whole model in float32, and rank 0 gathers it to publish and to save."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One model that is trained on a number of ranks, by the options of a configuration."""

    size: ModelSize
    num_ranks: int
    width: int
    """Bytes of a number in the compute dtype."""
    num_tokens: int
    """Tokens of a pass."""
    max_length: int
    """Tokens of the longest sequence."""
    checkpointing: bool
    adapters: tuple[LoraPolicy, ...] = ()
    """Empty if all weights are trained."""
    base_bits: int | None = None
    """Bits per weight of the base's linear layers; None if they are not quantized."""
    has_reference: bool = False
    has_value_head: bool = False
    has_output_layer: bool = True
    optimizer: str = "adamw"
    offloads_optimizer: bool = False
    copies_saves: bool = False
    """Whether checkpoints are written from a copy in host memory."""
    device: Device = "gpu"

    @property
    def num_parameters(self) -> int:
        """Parameters of the model; a critic has no output layer."""
        size = self.size
        unused = 0 if self.has_output_layer or size.is_tied else size.vocab_size * size.hidden_size
        return size.num_parameters - unused

    @property
    def num_trained(self) -> int:
        """Parameters that have gradients and optimizer state."""
        if not self.adapters:
            return self.num_parameters
        return sum(map(self.size.adapter_parameters, self.adapters))

    @property
    def activations(self) -> Activations:
        """What a pass saves per token."""
        rank = max((policy.rank for policy in self.adapters), default=0)
        num_keys = self.max_length if self.device == "cpu" else 0
        return Activations(self.size, self.width, rank, self.num_ranks == 1, num_keys)

    @property
    def _root(self) -> int:
        """Parameters that FSDP gathers outside of the layers."""
        return self.num_parameters - self.size.num_layers * self.size.layer_parameters

    def device_parts(self) -> list[Part]:
        """What a rank needs on its device at its largest moment."""
        moments = [self._at_head(), self._at_layer(), self._at_reduction(), self._at_update()]
        context = [Part("CUDA context", "libraries and buffers", CUDA_CONTEXT)]
        in_pass = max(moments, key=total)
        return [*self.state_parts(), *in_pass, *(context if self.device == "gpu" else [])]

    def state_parts(self) -> list[Part]:
        """Weights, gradients and optimizer state of a rank."""
        ranks, prefix = self.num_ranks, self._prefix
        parts: list[Part] = []
        if self.adapters:
            parts += self._base()
        for name, width in (("weights", FLOAT), ("gradients", FLOAT)):
            parts.append(parameters_part(prefix + name, self.num_trained, width, ranks, "ranks"))
        if not self.offloads_optimizer:
            parts.append(self._moments())
        if self.has_reference and not self.adapters:
            reference = self.num_parameters, self.width
            parts.append(parameters_part("reference model", *reference, ranks, "ranks"))
        return parts

    def host_parts(self) -> list[Part]:
        """What a rank of a GPU learner needs on its host when it loads, publishes or saves."""
        parts = [Part("process", "Python and CUDA libraries", HOST_PROCESS)]
        if self.offloads_optimizer:
            parts.append(self._moments())
        if self.copies_saves:
            width = FLOAT + MOMENTS[self.optimizer]
            name = "copy of what a checkpoint saves"
            parts.append(parameters_part(name, self.num_trained, width, self.num_ranks, "ranks"))
        return [*parts, max(self._file_parts(), key=lambda part: part.num_bytes)]

    def _file_parts(self) -> Iterator[Part]:
        if SHARDED_FILES:
            tensor = FLOAT * self.size.largest_tensor
            yield Part("load, publish and save", "largest tensor in float32", tensor)
            return
        yield parameters_part("load", self.num_parameters, FLOAT)
        for name, width in (("publish", FLOAT), ("save", FLOAT + MOMENTS[self.optimizer])):
            yield parameters_part(f"{name} on rank 0", self.num_trained, 2 * width)

    def _base(self) -> Iterator[Part]:
        """The frozen base of a rank."""
        ranks, plain = self.num_ranks, self.num_parameters
        if self.base_bits:
            plain -= self.size.linear_parameters
            given = self.size.linear_parameters, BASE_BYTES[self.base_bits], ranks, "ranks"
            yield parameters_part(f"frozen base in {self.base_bits} bits", *given)
        yield parameters_part("frozen base", plain, self.width, ranks, "ranks")

    @property
    def _layer_width(self) -> float:
        """Bytes per parameter of a gathered layer."""
        if not self.base_bits:
            return self.width
        size = self.size
        share = size.linear_parameters / (size.num_layers * size.layer_parameters)
        return share * BASE_BYTES[self.base_bits] + (1 - share) * self.width

    def _matrix(self) -> Iterator[Part]:
        """The largest matrix of a layer as a product reads it, and without its scales."""
        if self.base_bits:
            count = self.size.hidden_size * self.size.mlp_size
            yield parameters_part("dequantized matrix", count, 2 * self.width)

    @property
    def _prefix(self) -> str:
        return "adapter " if self.adapters else ""

    def _moments(self) -> Part:
        width = MOMENTS[self.optimizer]
        name = f"{self._prefix}optimizer state"
        return parameters_part(name, self.num_trained, width, self.num_ranks, "ranks")

    def _at_head(self) -> list[Part]:
        """The output layer, after all layers have saved their activations."""
        parts = [self._kept(), *self._value_head(), *self._copies(GATHERED_LAYERS)]
        if not self.has_output_layer:
            return parts
        head = self.activations.head(self.num_tokens)
        if not self.adapters:  # the gradient of its weight is summed in float32
            head += FLOAT * self.size.vocab_size * self.size.hidden_size
        return [*parts, Part("output head", "one chunk of logits, gradients", head)]

    def _at_layer(self) -> list[Part]:
        """The backward pass of the last layer, while all others wait for theirs."""
        what = "one layer recomputed, and its gradients" if self.checkpointing else "temporaries"
        backward = self.activations.backward(self.num_tokens, self.checkpointing)
        parts = [self._kept(), *self._value_head(), *self._copies(GATHERED_LAYERS)]
        parts.append(Part("backward pass of a layer", what, backward))
        parts += self._matrix()
        return [*parts, *self._unreduced(self.size.layer_parameters, "of a layer")]

    def _at_reduction(self) -> list[Part]:
        """The end of the backward pass: gradients outside of the layers are reduced."""
        return [*self._copies(0), *self._unreduced(self._root, "outside of the layers")]

    def _at_update(self) -> list[Part]:
        """The optimizer step, without activations."""
        return [self._moments()] if self.offloads_optimizer else []

    def _kept(self) -> Part:
        activations = self.activations
        saved = activations.input if self.checkpointing else activations.layer
        what = "checkpointed" if self.checkpointing else "not checkpointed"
        formula = (
            f"{self.num_tokens} tokens * {self.size.num_layers} layers * {saved / 1024:.0f} KiB"
        )
        kept = activations.kept(self.num_tokens, self.checkpointing)
        return Part("activations", f"{formula}, {what}", kept)

    def _value_head(self) -> Iterator[Part]:
        if self.has_value_head:
            hidden = FLOAT * self.num_tokens * self.size.hidden_size
            yield Part("value head", f"{self.num_tokens} hidden states in float32", hidden)

    def _copies(self, num_layers: int) -> Iterator[Part]:
        """Weights in the compute dtype: gathered by FSDP, or cast by autocast."""
        if self.num_ranks > 1:
            layers = num_layers * self.size.layer_parameters * self._layer_width / self.width
            both = 2 if self.has_reference and not self.adapters else 1
            yield parameters_part("gathered weights", both * (self._root + layers), self.width)
        elif not self.adapters and self.width < FLOAT:
            yield parameters_part("weights cast to bfloat16", self.num_parameters, self.width)

    def _unreduced(self, count: int, what: str) -> Iterator[Part]:
        """Whole gradients on a rank, their float32 copies that are reduced, and the result."""
        if self.num_ranks > 1 and not self.adapters:
            width = self.width + FLOAT + FLOAT / self.num_ranks
            yield parameters_part(f"gradients {what}", count, width)


def trained_group(config: RunConfig, group: ModelGroup, size: ModelSize, device: Device) -> Trained:
    """The learner of the policies that share a model."""
    num_ranks = group_resources(config, group).num_ranks
    return Trained(
        size,
        adapters=tuple(group.adapters.values()),
        base_bits=config.learner.base_bits if group.adapters else None,
        has_reference=bool(config.loss.kl_coef),
        has_value_head=config.critic is not None and config.critic.kind == "head",
        **_options(config, num_ranks, device),
    )


def trained_critic(config: RunConfig, size: ModelSize, device: Device) -> Trained:
    """A critic that is a separate model."""
    options = _options(config, critic_resources(config).num_ranks, device)
    return Trained(size, has_value_head=True, has_output_layer=False, **options)


def uses_checkpointing(config: RunConfig, device: Device) -> bool:
    """Whether activations are checkpointed; by default on GPUs."""
    asked = config.learner.activation_checkpointing
    return device == "gpu" if asked is None else asked


def _options(config: RunConfig, num_ranks: int, device: Device) -> dict[str, Any]:
    learner = config.learner
    return {
        "num_ranks": num_ranks,
        "width": compute_width(learner.dtype, device),
        "num_tokens": pass_tokens(config),
        "max_length": config.inference.max_model_len,
        "checkpointing": uses_checkpointing(config, device),
        "optimizer": learner.optimizer,
        "offloads_optimizer": learner.offload_optimizer,
        "copies_saves": config.train.background_saves,
        "device": device,
    }
