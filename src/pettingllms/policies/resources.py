"""Resources per model: engines, GPUs per engine and learner ranks, resolved in one place.

Numbers are global ([inference], [learner]) unless a policy gives its own in
[policies.NAME.resources]. Everything that counts processes or GPUs reads `GroupResources`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pettingllms.config import InferenceConfig, LearnerConfig, RunConfig
from pettingllms.errors import ClusterError
from pettingllms.policies.layout import Layout, Node, ProcessGroup, plan_layout
from pettingllms.policies.plan import CriticPlan, ModelGroup, plan_critics

REPLICAS_PER_WORKER = 4
"""Engines per rollout worker, if `rollout.num_workers` is `auto`."""
Key = Literal["num_replicas", "tensor_parallel", "num_ranks"]


@dataclass(frozen=True, slots=True)
class GroupResources:
    """The processes of one model."""

    num_replicas: int = 0
    """Inference engines; a critic has none."""
    tensor_parallel: int = 1
    """GPUs per engine."""
    num_ranks: int = 0
    """Processes of its learner; 0: nothing learns."""

    def inference(self, config: InferenceConfig) -> InferenceConfig:
        """The section of its engines."""
        update = {"num_replicas": self.num_replicas, "tensor_parallel": self.tensor_parallel}
        return config.model_copy(update=update)

    def learner(self, config: LearnerConfig) -> LearnerConfig:
        """The section of its learner."""
        return config.model_copy(update={"num_ranks": self.num_ranks})


def group_resources(config: RunConfig, group: ModelGroup) -> GroupResources:
    """The resources of a model that policies share. Values that its policies give agree."""
    return GroupResources(
        _resolved(config, group, "num_replicas")[0],
        _resolved(config, group, "tensor_parallel")[0],
        _resolved(config, group, "num_ranks")[0] if group.trained else 0,
    )


def critic_resources(config: RunConfig) -> GroupResources:
    """The resources of each critic that is a separate model."""
    own = config.critic.num_ranks if config.critic else None
    return GroupResources(num_ranks=own or config.learner.num_ranks)


def process_groups(
    config: RunConfig, groups: Sequence[ModelGroup], learning: bool = True, sampling: bool = True
) -> tuple[ProcessGroup, ...]:
    """What is placed on GPUs, in the order of the configuration: of both kinds, or of one."""
    colocated = config.cluster.placement == "colocated" and learning and sampling
    found: list[ProcessGroup] = []
    for group in groups:
        if colocated and group.trained:
            found.append(_colocated(config, group))
            continue
        if sampling:
            found += _engines(config, group)
        if learning and group.trained:
            found.append(_learner(config, group))
    if learning:
        found += [_critic(config, plan) for plan in plan_critics(config)]
    return tuple(found)


def num_gpus_needed(config: RunConfig, groups: Sequence[ModelGroup]) -> int:
    """GPUs that a run needs: one per learner rank and `tensor_parallel` per engine, or the larger
    of both for a colocated model."""
    return sum(group.num_gpus for group in process_groups(config, groups))


def check_placement(config: RunConfig, groups: Sequence[ModelGroup]) -> None:
    """Raise ClusterError for what no number of GPUs can run."""
    can = config.inference.capabilities
    if not can.gpu:
        raise ClusterError(
            f'inference.engine = "{config.inference.engine}" runs only on CPU; set cluster.device '
            '= "cpu", or leave inference.engine out'
        )
    if config.cluster.placement != "colocated":
        return
    if not can.pause:
        raise ClusterError(
            f'inference.engine = "{config.inference.engine}" cannot free its memory while '
            'learners work; set cluster.placement = "separate"'
        )
    for group in groups:
        if group.trained:
            _check_same_gpus(config, group)


def check_resources(
    config: RunConfig,
    groups: Sequence[ModelGroup],
    nodes: Sequence[Node],
    learning: bool = True,
    sampling: bool = True,
) -> Layout:
    """The layout of a run on nodes; raises ClusterError if there is none: Ray would wait for more
    GPUs without a message."""
    check_placement(config, groups)
    return plan_layout(process_groups(config, groups, learning, sampling), nodes)


def num_workers(config: RunConfig, num_replicas: int, num_cores: int) -> int:
    """Number of rollout workers; 0: the driver plays. See `rollout.num_workers`."""
    wanted = config.rollout.num_workers
    if wanted != "auto":
        return wanted
    is_small = not config.cluster.address and num_replicas <= REPLICAS_PER_WORKER
    if is_small or config.inference.recording:
        return 0
    return max(1, min(-(-num_replicas // REPLICAS_PER_WORKER), num_cores // 2))


def _check_same_gpus(config: RunConfig, group: ModelGroup) -> None:
    own = group_resources(config, group)
    num_gpus = own.num_replicas * own.tensor_parallel
    if num_gpus == own.num_ranks:
        return
    keys = [_resolved(config, group, key)[1] for key in ("num_replicas", "tensor_parallel")]
    ranks = _resolved(config, group, "num_ranks")[1]
    raise ClusterError(
        'cluster.placement = "colocated" lets the engines and the learner of a model share the '
        f"same GPUs, but the engines of {_names(group)} take {num_gpus} ({keys[0]} = "
        f"{own.num_replicas}, {keys[1]} = {own.tensor_parallel}) and the learner {own.num_ranks}; "
        f'set {ranks} = {num_gpus}, or cluster.placement = "separate"'
    )


def _resolved(config: RunConfig, group: ModelGroup, key: Key) -> tuple[int, str]:
    """A number of a model, and the key that gives it."""
    policies = {**group.trained, **group.frozen}
    for name in group.policies:
        value = getattr(policies[name].resources, key, None)
        if value is not None:
            return int(value), f"policies.{name}.resources.{key}"
    section = "learner" if key == "num_ranks" else "inference"
    return int(getattr(getattr(config, section), key)), f"{section}.{key}"


def _engines(config: RunConfig, group: ModelGroup) -> Iterator[ProcessGroup]:
    own, policies = group_resources(config, group), tuple(group.policies)
    width, key = _resolved(config, group, "tensor_parallel")
    for number in range(own.num_replicas):
        yield ProcessGroup("engine", group.name, policies, width, width, number, key)


def _learner(config: RunConfig, group: ModelGroup) -> ProcessGroup:
    num_ranks, key = _resolved(config, group, "num_ranks")
    return ProcessGroup("learner", group.name, tuple(group.trained), num_ranks, 1, key=key)


def _colocated(config: RunConfig, group: ModelGroup) -> ProcessGroup:
    """One set of GPUs. Each engine stays on one node, and the ranks follow."""
    own = group_resources(config, group)
    num_gpus = max(own.num_replicas * own.tensor_parallel, own.num_ranks)
    key = _resolved(config, group, "tensor_parallel")[1]
    policies = tuple(group.policies)
    return ProcessGroup("colocated", group.name, policies, num_gpus, own.tensor_parallel, key=key)


def _critic(config: RunConfig, plan: CriticPlan) -> ProcessGroup:
    key = "critic.num_ranks" if config.critic and config.critic.num_ranks else "learner.num_ranks"
    num_ranks = critic_resources(config).num_ranks
    return ProcessGroup("critic", plan.name, plan.policies, num_ranks, 1, key=key)


def _names(group: ModelGroup) -> str:
    return ", ".join(f"'{name}'" for name in group.policies)
