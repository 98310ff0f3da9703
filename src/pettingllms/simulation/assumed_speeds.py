"""Speeds on named GPUs, from published peaks and assumed efficiencies. Never measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.config.policies import LoraPolicy
from pettingllms.policies import (
    ModelGroup,
    critic_resources,
    group_resources,
    plan_critics,
    plan_models,
)
from pettingllms.policies.resources import num_workers
from pettingllms.preflight.estimates import compute_width
from pettingllms.preflight.hardware import Hardware
from pettingllms.preflight.learner_memory import uses_checkpointing
from pettingllms.preflight.memory import estimate_memory, num_cached_sequences
from pettingllms.preflight.model_size import ModelSize
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.gpus import GIGA, Peak, peak_of
from pettingllms.simulation.speeds import (
    EngineSpeed,
    LearnerSpeed,
    LoopSpeed,
    ModelSpeeds,
    PublishSpeed,
    Speeds,
)

FORWARD, BACKWARD = 2, 4
"""Operations per parameter and token; the backward pass has two products."""
OPTIMIZER_BYTES = 28
"""Bytes that AdamW reads and writes per trained parameter."""
FLOAT = 4


@dataclass(frozen=True, slots=True)
class Gpus:
    """The hardware of a run, and what is assumed about it."""

    hardware: Hardware
    peak: Peak
    assumed: Assumptions

    def flops(self, width: int) -> float:
        """Peak arithmetic; half of it in float32, on tensor cores."""
        return self.peak.flops * (0.5 if width == FLOAT else 1.0)

    def exchange_bytes(self, num_ranks: int) -> float:
        """Bytes per second at which ranks gather or reduce a model."""
        inside = self.peak.link_bytes
        if num_ranks > self.hardware.gpus_per_node:
            inside = min(inside, self.network_bytes * self.hardware.gpus_per_node)
        return inside * self.assumed.link_share

    @property
    def network_bytes(self) -> float:
        """Bytes per second between nodes, per GPU."""
        return self.assumed.network_gbit * GIGA / 8


def active_parameters(size: ModelSize) -> int:
    """Parameters that one token uses in products: without embeddings and unused experts."""
    attention = size.hidden_size * size.head_dim * 2 * (size.num_heads + size.num_kv_heads)
    layer = attention + 3 * size.hidden_size * size.mlp_size
    return size.num_layers * layer + size.vocab_size * size.hidden_size


def attention_flops(size: ModelSize, context: float) -> float:
    """Operations of attention per token in a forward pass, at a mean context."""
    return 4 * size.num_layers * size.num_heads * size.head_dim * context


def assumed_speeds(
    config: RunConfig,
    hardware: Hardware,
    sizes: Mapping[str, ModelSize],
    assumed: Assumptions,
    context: float,
) -> Speeds:
    """The speeds of a configuration. `context`: mean tokens before a token of a reply."""
    gpus = Gpus(hardware, peak_of(hardware), assumed)
    groups = plan_models(config)
    models = {
        group.name: ModelSpeeds(
            _engine(config, group, sizes, gpus),
            _learner(config, group, sizes[group.model], gpus, context) if group.trained else None,
            _publish(config, group, sizes[group.model], gpus),
        )
        for group in groups
    }
    critics = {
        plan.name: _critic(config, sizes[plan.model], gpus, context)
        for plan in plan_critics(config)
    }
    num_replicas = sum(group_resources(config, group).num_replicas for group in groups)
    cores = assumed.cores_per_node * hardware.num_nodes
    loop = LoopSpeed(
        env=assumed.env_seconds,
        worker=assumed.worker_seconds,
        step=assumed.step_seconds,
        num_workers=max(1, num_workers(config, num_replicas, cores)),
        sleep=assumed.sleep_seconds if config.cluster.placement == "colocated" else 0.0,
    )
    return Speeds(models, critics, loop)


def _engine(
    config: RunConfig, group: ModelGroup, sizes: Mapping[str, ModelSize], gpus: Gpus
) -> EngineSpeed:
    size, assumed = sizes[group.model], gpus.assumed
    own = group_resources(config, group)
    width, num = compute_width(config.inference.dtype, "gpu"), own.tensor_parallel
    token = FORWARD * active_parameters(size) / (num * gpus.flops(width) * assumed.engine_mfu)
    read = 1 / (num * gpus.peak.memory_bytes * assumed.engine_bandwidth)
    exchange = 2 * size.num_layers * assumed.allreduce_seconds if num > 1 else 0.0
    return EngineSpeed(
        step=assumed.engine_overhead + exchange,
        weights=size.num_parameters * width * read,
        token=token,
        context=size.kv_bytes(1, width) * read,
        prefill=token,
        request=assumed.request_seconds,
        capacity=_capacity(config, group, sizes, gpus.hardware),
    )


def _capacity(
    config: RunConfig, group: ModelGroup, sizes: Mapping[str, ModelSize], hardware: Hardware
) -> float:
    """Tokens that the KV cache of an engine holds, as `check --gpu` plans it."""
    (engine, *_) = estimate_memory(config, [group], sizes)
    number = num_cached_sequences(engine, hardware.device_bytes)
    return max(1.0, (number or 1.0) * config.inference.max_model_len)


def _learner(
    config: RunConfig, group: ModelGroup, size: ModelSize, gpus: Gpus, context: float
) -> LearnerSpeed:
    adapters = list(group.adapters.values())
    trained = max(map(size.adapter_parameters, adapters)) if adapters else size.num_parameters
    ranks = group_resources(config, group).num_ranks
    return _training(config, size, gpus, ranks, trained, context, frozen=bool(adapters))


def _critic(config: RunConfig, size: ModelSize, gpus: Gpus, context: float) -> LearnerSpeed:
    ranks = critic_resources(config).num_ranks
    return _training(config, size, gpus, ranks, size.num_parameters, context, frozen=False)


def _training(
    config: RunConfig,
    size: ModelSize,
    gpus: Gpus,
    ranks: int,
    trained: int,
    context: float,
    frozen: bool,
) -> LearnerSpeed:
    learner, assumed = config.learner, gpus.assumed
    width = compute_width(learner.dtype, "gpu")
    flops = ranks * gpus.flops(width) * assumed.learner_mfu
    forward = FORWARD * active_parameters(size) + attention_flops(size, context)
    passes = 1 + (1 if frozen else 2) + (1 if uses_checkpointing(config, "gpu") else 0)
    exchange = gpus.exchange_bytes(ranks)
    gather = size.num_parameters * width / exchange if ranks > 1 else 0.0
    num_updates = learner.num_minibatches * learner.num_epochs
    reduce = trained * FLOAT / exchange if ranks > 1 else 0.0
    memory = trained * OPTIMIZER_BYTES / ranks / (gpus.peak.memory_bytes * assumed.link_share)
    return LearnerSpeed(
        token=learner.num_epochs * passes * forward / flops,
        read=forward / flops,
        batch=num_updates * (assumed.update_seconds + reduce + memory),
        pass_tokens=ranks * learner.max_batch_tokens,
        pass_seconds=learner.num_epochs * 2 * gather,
    )


def _publish(config: RunConfig, group: ModelGroup, size: ModelSize, gpus: Gpus) -> PublishSpeed:
    """Adapters go through Ray's object store, full models from rank 0 to all engines at once."""
    assumed = gpus.assumed
    if group.publish_method == "publish_weights":
        num_bytes = size.num_parameters * compute_width(config.inference.dtype, "gpu")
        gather = num_bytes / gpus.exchange_bytes(group_resources(config, group).num_ranks)
        seconds = gather + num_bytes / (gpus.network_bytes * assumed.link_share)
        in_flight = config.updates_in_flight
        return PublishSpeed(seconds, assumed.canary_seconds, drains=not in_flight, pauses=in_flight)
    largest = max(map(size.adapter_parameters, _adapters(group)), default=0)
    return PublishSpeed(largest * FLOAT / (assumed.store_gbyte * GIGA), assumed.canary_seconds)


def _adapters(group: ModelGroup) -> list[LoraPolicy]:
    return list(group.adapters.values())
