"""Estimates of the memory that the engines, learners and critics of a run need.

Sizes come from a model's config.json and from the headers of its weight files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from pettingllms.config import RunConfig
from pettingllms.policies import (
    ModelGroup,
    critic_resources,
    group_resources,
    num_gpus_needed,
    plan_critics,
)
from pettingllms.preflight.estimates import (
    Device,
    Part,
    ProcessEstimate,
    amount,
    compute_width,
    parameters_part,
    total,
)
from pettingllms.preflight.learner_memory import CUDA_CONTEXT, trained_critic, trained_group
from pettingllms.preflight.machine import Finding
from pettingllms.preflight.model_size import ModelSize
from pettingllms.registry import ENGINES
from pettingllms.runtime.resources import GIB

ENGINE_WORKSPACE = 2 * GIB
"""CUDA context, graphs and activations of an inference engine. Never measured here."""
USABLE = 0.95
"""Share of a device's memory that a learner can use; the rest is lost to fragmentation."""
MIB_OF_GPU = re.compile(r"(\d+) MiB")


def estimate_memory(
    config: RunConfig,
    groups: Sequence[ModelGroup],
    sizes: Mapping[str, ModelSize],
    device: Device = "gpu",
) -> list[ProcessEstimate]:
    """The processes of a run: engines, learners and critics."""
    found = [_engine(config, group, sizes[group.model]) for group in groups]
    found += [_learner(config, g, sizes[g.model], device) for g in groups if g.trained]
    for plan in plan_critics(config):
        trained = trained_critic(config, sizes[plan.model], device)
        parts = tuple(trained.device_parts()), tuple(trained.host_parts())
        ranks = critic_resources(config).num_ranks
        found.append(ProcessEstimate(f"'{plan.name}'", ranks, 1, *parts, USABLE))
    return found


def estimate_gpus(
    config: RunConfig,
    groups: Sequence[ModelGroup],
    sizes: Mapping[str, ModelSize],
    device_bytes: float,
) -> list[ProcessEstimate]:
    """The same on GPUs of a given size. Colocated engines and learners share theirs."""
    found = estimate_memory(config, groups, sizes)
    if config.cluster.placement != "colocated":
        return found
    alone = [_engine(config, g, sizes[g.model]) for g in groups if not g.trained]
    shared = [_colocated(config, g, sizes[g.model], device_bytes) for g in groups if g.trained]
    return [*shared, *alone, *found[len(groups) + len(shared) :]]


def _learner(
    config: RunConfig, group: ModelGroup, size: ModelSize, device: Device
) -> ProcessEstimate:
    trained = trained_group(config, group, size, device)
    parts = tuple(trained.device_parts()), tuple(trained.host_parts())
    ranks = group_resources(config, group).num_ranks
    return ProcessEstimate(f"learner of {_names(group.trained)}", ranks, 1, *parts, USABLE)


def _colocated(
    config: RunConfig, group: ModelGroup, size: ModelSize, device_bytes: float
) -> ProcessEstimate:
    """Engines that sleep while the learner works, and a learner that keeps its state. Each engine
    shares its GPUs with as many ranks."""
    engine, learner = _engine(config, group, size), _learner(config, group, size, "gpu")
    state = trained_group(config, group, size, "gpu").state_parts()
    share, ranks = config.inference.gpu_memory_utilization, engine.gpus_per_process
    reserved = Part("engine", f"{share:g} of the device", share * device_bytes)
    sampling = [reserved, *(part for part in state if not part.name.endswith("gradients"))]
    sleeping = Part("sleeping engine", "its CUDA context", CUDA_CONTEXT)
    device = max(sampling, [*learner.device, sleeping], key=total)
    host = [*engine.host, *(part for part in learner.host for _ in range(ranks))]
    copied = (part for part in engine.device if part.name == "weights")  # while it sleeps
    host += [part for part in copied for _ in range(ranks)]
    return ProcessEstimate(
        f"engine and learner of {_names(group.policies)}",
        engine.num_processes,
        ranks,
        tuple(device),
        tuple(host),
        USABLE,
    )


def _engine(config: RunConfig, group: ModelGroup, size: ModelSize) -> ProcessEstimate:
    """An engine with room for one sequence; it uses the rest of its share as KV cache."""
    inference = group_resources(config, group).inference(config.inference)
    width, gpus = compute_width(inference.dtype, "gpu"), inference.tensor_parallel
    parts = [parameters_part("weights", size.num_parameters, width, gpus, "GPUs")]
    adapters = len(group.adapters) * max(
        map(size.adapter_parameters, group.adapters.values()), default=0
    )
    if adapters:
        parts.append(parameters_part("adapters", adapters, width, gpus, "GPUs"))
    parts.append(
        Part(
            "KV cache of one sequence",
            f"{inference.max_model_len} tokens * 2 * {size.num_layers} layers * "
            f"{size.num_kv_heads} heads * {size.head_dim} * {width} B",
            size.kv_bytes(inference.max_model_len, width) / gpus,
        )
    )
    parts.append(Part("workspace", "CUDA context, graphs, activations", ENGINE_WORKSPACE))
    process = ENGINES.load(inference.engine).process_gib * GIB
    host = [
        Part("process", "Python and CUDA libraries", gpus * process + CUDA_CONTEXT),
        *([parameters_part("adapters", 2 * adapters, width)] if adapters else []),
        Part("load", "largest tensor", size.largest_tensor * width),
    ]
    return ProcessEstimate(
        f"engine of {_names(group.policies)}",
        inference.num_replicas,
        gpus,
        tuple(parts),
        tuple(host),
        inference.gpu_memory_utilization,
    )


def pass_bytes(
    config: RunConfig, groups: Sequence[ModelGroup], sizes: Mapping[str, ModelSize], device: Device
) -> float:
    """Bytes that the largest pass of a learner adds to its weights, gradients and optimizer."""
    learners = [trained_group(config, g, sizes[g.model], device) for g in groups if g.trained]
    learners += [trained_critic(config, sizes[p.model], device) for p in plan_critics(config)]
    added = (total(one.device_parts()) - total(one.state_parts()) for one in learners)
    return max(added, default=0.0)


def num_cached_sequences(estimate: ProcessEstimate, device_bytes: float) -> float | None:
    """Sequences of `max_model_len` tokens that an engine's KV cache holds; None for learners."""
    for part in estimate.device:
        if part.name == "KV cache of one sequence" and part.num_bytes:
            others = estimate.num_bytes - part.num_bytes
            return (estimate.share * device_bytes - others) / part.num_bytes
    return None


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
    yield Finding("ok", f"{what}; engines and learners share them" if shared else what)
    for model, size in sizes.items():
        if gpus and size.missing:
            what = f"GPU memory: config.json of '{model}' lacks {', '.join(size.missing)}"
            yield Finding("note", what, "leave room: activations are not counted")
    room = min((int(m[1]) * 2**20 for gpu in gpus if (m := MIB_OF_GPU.search(gpu))), default=None)
    for estimate in estimate_gpus(config, groups, sizes, room or 0):
        what = f"GPU memory (estimate): {estimate.describe()}"
        if room is not None and estimate.num_bytes > estimate.share * room:
            what = f"{what}; it can use {amount(estimate.share * room)} of a GPU"
            advice = "`pettingllms check CONFIG --gpu NAME` lists changes that make it fit"
            yield Finding("problem", what, advice)
        else:
            yield Finding("ok", what)


def _names(policies: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(f"'{name}'" for name in policies)
