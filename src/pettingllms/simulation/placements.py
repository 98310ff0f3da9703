"""Ways to divide the GPUs of a cluster among engines and learners, and a search for the best."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pettingllms.config import RunConfig
from pettingllms.config.policies import EngineResources, PolicyResources
from pettingllms.errors import ClusterError
from pettingllms.policies import (
    GroupResources,
    ModelGroup,
    critic_resources,
    group_resources,
    plan_critics,
    plan_models,
)
from pettingllms.preflight.hardware import Hardware
from pettingllms.preflight.memory import estimate_gpus, estimate_memory, num_cached_sequences
from pettingllms.preflight.model_size import ModelSize
from pettingllms.preflight.sizing import find_layout
from pettingllms.simulation.assumed_speeds import active_parameters

WIDTHS = (1, 2, 4, 8)
"""GPUs per engine that are tried."""
FIRST_SHARE = 0.25
"""Share of GPUs for learners that is tried first."""
NUM_BALANCED = 2
"""Trials that move toward balance."""
BESIDE = (0.75, 1.5, 2.2)
"""Further shares that are tried, relative to the balanced one. Learners need some slack, because
they wait for whole batches."""
LEAST_CACHED = 8
"""Sequences of the longest length that the KV cache of an engine must hold."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A configuration with its processes on a number of GPUs."""

    config: RunConfig
    resources: Mapping[str, GroupResources]
    """By model group."""

    @property
    def overrides(self) -> list[str]:
        """Overrides of the configuration that give this placement."""
        found = [f"cluster.placement={self.config.cluster.placement}"]
        if len(set(self.resources.values())) == 1 and not _own(self.config):
            return [*found, *_global(next(iter(self.resources.values())))]
        for group in plan_models(self.config):
            name = next(iter(group.policies))
            for key, value in _numbers(self.resources[group.name]).items():
                found.append(f"policies.{name}.resources.{key}={value}")
        return found


def _own(config: RunConfig) -> bool:
    kept = (getattr(policy, "resources", None) for policy in config.policies.values())
    return any(one is not None and one.model_fields_set - SIMULATED for one in kept)


SIMULATED = {"num_replicas", "tensor_parallel", "num_ranks"}


def _numbers(one: GroupResources) -> dict[str, int]:
    found = {"num_replicas": one.num_replicas, "tensor_parallel": one.tensor_parallel}
    return {**found, "num_ranks": one.num_ranks} if one.num_ranks else found


def _global(one: GroupResources) -> list[str]:
    return [
        f"{'learner' if key == 'num_ranks' else 'inference'}.{key}={value}"
        for key, value in _numbers(one).items()
    ]


class Placements:
    """The placements of a configuration on given hardware that fit."""

    def __init__(
        self, config: RunConfig, hardware: Hardware, sizes: Mapping[str, ModelSize]
    ) -> None:
        self._config = config
        self._hardware = hardware
        self._sizes = sizes
        self._groups = plan_models(config)
        critics = len(plan_critics(config)) * critic_resources(config).num_ranks
        self._num_gpus = hardware.num_gpus - critics

    def separate(self, learner_share: float) -> Placement | None:
        """Engines and learners on their own GPUs; None if that does not fit."""
        resources = {}
        for group, num_gpus in self._shares():
            ranks = self._ranks(num_gpus * learner_share, num_gpus) if group.trained else 0
            width = self._width(group, num_gpus - ranks)
            while group.trained and ranks and not self._fits(group, 1, width, ranks):
                ranks = self._more(ranks)
                if ranks >= num_gpus:
                    return None
            if (replicas := (num_gpus - ranks) // width) < 1:
                return None
            resources[group.name] = GroupResources(replicas, width, ranks)
        return self._checked("separate", resources)

    def colocated(self) -> Placement | None:
        """Engines and learners on the same GPUs, in turns; None if that does not fit."""
        if not self._config.inference.capabilities.pause:
            return None
        resources = {}
        for group, num_gpus in self._shares():
            for width in WIDTHS:
                replicas = num_gpus // width
                ranks = replicas * width if group.trained else 0
                if replicas and self._fits(group, replicas, width, ranks, "colocated"):
                    resources[group.name] = GroupResources(replicas, width, ranks)
                    break
            else:
                return None
        return self._checked("colocated", resources)

    def _shares(self) -> Iterator[tuple[ModelGroup, int]]:
        """GPUs of each model, in proportion to its arithmetic."""
        roles = [*self._config.roles.values()]
        weights = [
            active_parameters(self._sizes[group.model])
            * max(1, sum(roles.count(policy) for policy in group.policies))
            for group in self._groups
        ]
        for group, weight in zip(self._groups, weights, strict=True):
            yield group, int(self._num_gpus * weight / sum(weights))

    def _ranks(self, wanted: float, most: int) -> int:
        """The nearest number of ranks that divides nodes well."""
        node = self._hardware.gpus_per_node
        small = [ranks for ranks in (1, 2, 4, 8, 16) if ranks < min(node, most)]
        whole = range(node, most, node)
        return min([*small, *whole], key=lambda ranks: abs(ranks - wanted), default=1)

    def _more(self, ranks: int) -> int:
        node = self._hardware.gpus_per_node
        return 2 * ranks if 2 * ranks <= node else (ranks // node + 1) * node

    def _width(self, group: ModelGroup, num_gpus: int) -> int:
        """The fewest GPUs per engine, from what the configuration gives."""
        least = group_resources(self._config, group).tensor_parallel
        for width in WIDTHS:
            if width >= least and self._fits(group, 1, width, 0):
                return width
        return max(1, num_gpus + 1)

    def _fits(
        self, group: ModelGroup, replicas: int, width: int, ranks: int, placement: str = "separate"
    ) -> bool:
        """Whether the processes of a model fit into the memory of their GPUs."""
        resources = {group.name: GroupResources(replicas, width, max(1, ranks))}
        config = self._with(placement, resources)
        (own,) = (one for one in plan_models(config) if one.name == group.name)
        room = self._hardware.device_bytes
        (engine, *_) = estimate_memory(config, [own], self._sizes)
        if (num_cached_sequences(engine, room) or 0) < LEAST_CACHED:
            return False
        found = estimate_gpus(config, [own], self._sizes, room)[: 2 if ranks else 1]
        return all(one.num_bytes <= one.share * room for one in found)

    def _with(self, placement: str, resources: Mapping[str, GroupResources]) -> RunConfig:
        policies = dict(self._config.policies)
        for group in self._groups:
            if group.name not in resources:
                continue
            numbers = _numbers(resources[group.name])
            for name in group.policies:
                is_trained = name in group.trained
                kind = PolicyResources if is_trained else EngineResources
                own = {k: v for k, v in numbers.items() if k in kind.model_fields}
                policies[name] = policies[name].model_copy(update={"resources": kind(**own)})
        cluster = self._config.cluster.model_copy(update={"placement": placement})
        return self._config.model_copy(update={"policies": policies, "cluster": cluster})

    def _checked(self, placement: str, resources: Mapping[str, GroupResources]) -> Placement | None:
        """The placement, if the planner of runs finds a layout for it."""
        config = self._with(placement, resources)
        layout, _ = find_layout(config, self._hardware.num_nodes, self._hardware.gpus_per_node)
        return None if layout is None else Placement(config, resources)


@dataclass(frozen=True, slots=True)
class Tried:
    """A placement, and how it went."""

    placement: Placement
    tokens_per_second: float
    engine_work: float
    """GPUs that engines keep busy."""
    learner_work: float
    """GPUs that learners keep busy."""

    @property
    def learner_share(self) -> float:
        """Share of GPUs for learners."""
        resources = self.placement.resources.values()
        ranks = sum(one.num_ranks for one in resources)
        return ranks / (ranks + sum(one.num_replicas * one.tensor_parallel for one in resources))

    @property
    def balanced_share(self) -> float:
        """Share of GPUs for learners at which both would be busy alike."""
        return self.learner_work / max(1e-9, self.learner_work + self.engine_work)


def best_split(placements: Placements, simulate: Callable[[Placement], Tried]) -> list[Tried]:
    """Placements that were tried, the best first. Each trial moves toward the balance of the one
    before; the last ones are beside the best."""
    tried: dict[tuple[GroupResources, ...], Tried] = {}

    def attempt(share: float) -> Tried | None:
        placement = placements.separate(share)
        if placement is None:
            return None
        key = tuple(placement.resources.values())
        if key not in tried:
            tried[key] = simulate(placement)
        return tried[key]

    share = FIRST_SHARE
    for _ in range(NUM_BALANCED):
        found = attempt(share) or attempt(share / 2) or attempt(1 - share)
        if found is None:
            break
        share = found.balanced_share
    for factor in BESIDE:
        attempt(min(0.9, share * factor))
    if not tried:
        raise ClusterError(
            "no division of these GPUs among engines and learners fits: `pettingllms check CONFIG "
            "--gpu NAME` shows what needs most memory; add nodes, or follow its advice"
        )
    return sorted(tried.values(), key=lambda one: -one.tokens_per_second)
