"""Estimates of the GPUs that a run needs and of the memory on each.

Sizes come from a model's config.json and from the headers of its weight files. Activations, the
CUDA context and fragmentation are not included, so leave headroom.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.engines import resolve_dtype
from pettingllms.models.folder import tensor_shapes
from pettingllms.policies import ModelGroup, num_gpus_needed, plan_critics
from pettingllms.preflight.machine import Finding
from pettingllms.runtime.resources import GIB
from pettingllms.vision.families import object_in

BYTES = {"float32": 4, "bfloat16": 2}
MASTER = 4
"""Bytes of a weight in the learner: weights, gradients and both Adam moments are float32."""
NOT_ADAPTED = re.compile(r"embed|lm_head|norm")
"""Tensors that LoRA leaves alone."""
MIB_OF_GPU = re.compile(r"(\d+) MiB")


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of an estimate."""

    name: str
    formula: str
    num_bytes: float


@dataclass(frozen=True, slots=True)
class DeviceEstimate:
    """What one process of a run needs on each of its GPUs."""

    name: str
    num_gpus: int
    parts: tuple[Part, ...]

    @property
    def num_bytes(self) -> float:
        """The sum of the parts."""
        return math.fsum(part.num_bytes for part in self.parts)

    def describe(self) -> str:
        """The sum and its parts with their formulas."""
        parts = "; ".join(f"{p.name} {_gib(p.num_bytes)} = {p.formula}" for p in self.parts)
        return f"{self.name}: about {_gib(self.num_bytes)} per GPU ({parts})"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The dimensions of a model that memory depends on."""

    num_parameters: int
    adapted: tuple[tuple[int, int], ...] = ()
    """Shapes of the matrices that LoRA adapts."""
    num_layers: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0

    def kv_bytes(self, num_tokens: int, width: int) -> int:
        """Bytes of the keys and values of this many tokens; 0 if config.json lacks a dimension."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * width * num_tokens

    def adapter_parameters(self, rank: int) -> int:
        """Parameters of one LoRA adapter: rank * (rows + columns) for each adapted matrix."""
        return rank * sum(rows + columns for rows, columns in self.adapted)


def read_size(folder: Path) -> ModelSize:
    """The size of the model in a folder."""
    shapes = tensor_shapes(folder)
    config = object_in(folder / "config.json")
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    heads = _count(text, "num_attention_heads")
    head_dim = _count(text, "head_dim") or (_count(text, "hidden_size") // heads if heads else 0)
    return ModelSize(
        num_parameters=sum(math.prod(shape) for shape in shapes.values()),
        adapted=tuple(
            (shape[0], shape[1])
            for name, shape in shapes.items()
            if len(shape) == 2 and not NOT_ADAPTED.search(name)
        ),
        num_layers=_count(text, "num_hidden_layers"),
        num_kv_heads=_count(text, "num_key_value_heads") or heads,
        head_dim=head_dim,
    )


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) else 0


def estimate_memory(
    config: RunConfig, groups: Sequence[ModelGroup], sizes: Mapping[str, ModelSize]
) -> list[DeviceEstimate]:
    """The GPU processes of a run: one engine per replica and one learner per trained model."""
    found = [_engine(config, group, sizes[group.model]) for group in groups]
    found += [_learner(config, group, sizes[group.model]) for group in groups if group.trained]
    for plan in plan_critics(config):
        size = sizes[plan.model].num_parameters
        parts = tuple(_trained("", size, config.learner.num_ranks))
        found.append(DeviceEstimate(f"'{plan.name}'", config.learner.num_ranks, parts))
    return found


def _engine(config: RunConfig, group: ModelGroup, size: ModelSize) -> DeviceEstimate:
    inference = config.inference
    width, gpus = BYTES[resolve_dtype(inference.dtype, "cuda")], inference.tensor_parallel
    over = f" / {gpus} GPUs" if gpus > 1 else ""
    parts = [
        Part(
            "weights",
            f"{_millions(size.num_parameters)} parameters * {width} B{over}",
            size.num_parameters * width / gpus,
        )
    ]
    if group.adapters:
        adapters = sum(size.adapter_parameters(p.rank) for p in group.adapters.values())
        formula = f"{_millions(adapters)} parameters * {width} B{over}"
        parts.append(Part("adapters", formula, adapters * width / gpus))
    num_tokens = inference.max_num_seqs * inference.max_model_len
    formula = (
        f"{inference.max_num_seqs} sequences * {inference.max_model_len} tokens * 2 * "
        f"{size.num_layers} layers * {size.num_kv_heads} heads * {size.head_dim} * {width} B{over}"
    )
    parts.append(Part("KV cache", formula, size.kv_bytes(num_tokens, width) / gpus))
    name = f"engine of {_names(group)}"
    return DeviceEstimate(name, inference.num_replicas * gpus, tuple(parts))


def _learner(config: RunConfig, group: ModelGroup, size: ModelSize) -> DeviceEstimate:
    ranks = config.learner.num_ranks
    over = f" / {ranks} ranks" if ranks > 1 else ""
    base = f"{_millions(size.num_parameters)} parameters"
    parts: list[Part] = []
    if group.full:
        parts += _trained("", size.num_parameters, ranks)
        if config.loss.kl_coef:
            width = BYTES[resolve_dtype(config.learner.dtype, "cuda")]
            num_bytes = size.num_parameters * width / ranks
            parts.append(Part("reference model", f"{base} * {width} B{over}", num_bytes))
    else:
        formula = f"{base} * {MASTER} B{over}"
        parts.append(Part("frozen base", formula, size.num_parameters * MASTER / ranks))
        adapters = sum(size.adapter_parameters(p.rank) for p in group.adapters.values())
        parts += _trained("adapter ", adapters, ranks)
    return DeviceEstimate(f"learner of {_names(group, trained=True)}", ranks, tuple(parts))


def _trained(prefix: str, num_parameters: int, ranks: int) -> Iterator[Part]:
    """Weights, gradients and optimizer state, sharded over ranks."""
    over = f" / {ranks} ranks" if ranks > 1 else ""
    for name, copies in (("weights", 1), ("gradients", 1), ("optimizer state", 2)):
        formula = f"{_millions(num_parameters)} parameters * {copies * MASTER} B{over}"
        yield Part(prefix + name, formula, copies * MASTER * num_parameters / ranks)


def check_gpu_memory(
    config: RunConfig,
    groups: Sequence[ModelGroup],
    sizes: Mapping[str, ModelSize],
    gpus: Sequence[str],
) -> Iterator[Finding]:
    """How many GPUs a run needs and how much memory on each; a problem if one is too small."""
    needed = num_gpus_needed(config, groups)
    shared = config.cluster.placement == "colocated"
    what = f"GPUs (estimate): {needed} needed on a machine with GPUs"
    yield Finding("ok", f"{what}; engine and learner share one" if shared else what)
    room = min((int(m[1]) * 2**20 for gpu in gpus if (m := MIB_OF_GPU.search(gpu))), default=None)
    found = estimate_memory(config, groups, sizes)
    if shared:
        parts = tuple(part for estimate in found for part in estimate.parts)
        found = [DeviceEstimate("engine and learner", 1, parts)]
    for estimate in found:
        what = f"GPU memory (estimate, without activations): {estimate.describe()}"
        if room is not None and estimate.num_bytes > room:
            advice = (
                'use a smaller model, kind = "lora", more inference.tensor_parallel or '
                "learner.num_ranks, or lower inference.max_num_seqs or max_model_len"
            )
            yield Finding("problem", f"{what}; the GPU has {_gib(room)}", advice)
        else:
            yield Finding("ok", what)


def _names(group: ModelGroup, trained: bool = False) -> str:
    return ", ".join(f"'{name}'" for name in (group.trained if trained else group.policies))


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / 2**20:.0f} MiB"


def _millions(count: float) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
