"""Placement: the GPUs, cores and settings of each process."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.policies import image_problem
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, ModelError
from pettingllms.inference.engines.base import UNBOUND, EngineSpec
from pettingllms.learners.critic import CriticSpec
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.policies import CriticPlan, ModelGroup
from pettingllms.runtime.resources import cores, num_cores

SHARED_GPU = 0.5
"""GPU share that an engine and a learner on one device each request from Ray."""


def gpu_shares(config: RunConfig, device: str) -> tuple[float, float]:
    """GPUs per engine and per learner rank."""
    if device == "cpu":
        return 0, 0
    if config.cluster.placement == "colocated":
        return SHARED_GPU, SHARED_GPU
    return config.inference.tensor_parallel, 1


def require_image_support(
    config: RunConfig,
    env: Environment[Any, Any],
    groups: Sequence[ModelGroup],
    models: Mapping[str, Path],
) -> None:
    """Reject a text-only model, or engine, for a role whose observations have images."""
    if env.image_roles and not config.inference.capabilities.images:
        raise ModelError(
            f"inference.engine: '{env.id}' shows images, and '{config.inference.engine}' serves "
            "only text models; set another engine"
        )
    for role in env.image_roles:
        policy = config.roles.get(role, "")  # empty: the role has no policy, as in a tournament
        for group in (one for one in groups if policy in one.policies):
            if reason := image_problem(config.policies[policy], models[group.name]):
                raise ModelError(
                    f"policies.{policy}: '{env.id}' shows images to '{role}', and {reason}"
                )


def engine_specs(
    config: RunConfig, group: ModelGroup, model: Path, device: str, at: int, num_groups: int
) -> list[EngineSpec]:
    """One engine per replica of a model."""
    num_replicas = config.inference.num_replicas
    league = config.league
    num_kept = league.max_snapshots if league and league.snapshot_every else 0
    num_co_players = len(config.co_players.snapshots()) if config.co_players else 0
    num_met = (min(league.num_opponents, num_kept) if league else 0) + num_co_players
    num_snapshots = num_kept + num_co_players if group.adapters else 0
    return [
        EngineSpec(
            model=model,
            config=config.inference,
            policies=tuple(group.policies),
            max_rank=max((policy.rank for policy in group.adapters.values()), default=0),
            num_adapters=len(group.adapters),
            adapts_vision=any(policy.supports_images_by for policy in group.adapters.values()),
            num_snapshots=num_snapshots,
            num_opponents=min(num_met, num_snapshots),
            device=device,
            cores=cores_of(at * num_replicas + number, num_groups * num_replicas),
            num_threads=max(1, usable_cores() // (num_groups * num_replicas)),
            loopback=not config.cluster.address,
            sleeps=config.cluster.placement == "colocated",
        )
        for number in range(num_replicas)
    ]


def learner_spec(config: RunConfig, group: ModelGroup, model: Path, device: str) -> LearnerSpec:
    """The learner of a model."""
    if problem := config.learner.optimizer_problem(device):
        raise ConfigError("config", [problem])
    return LearnerSpec(
        model=model,
        policies=group.trained,
        config=config.learner,
        loss=config.loss,
        max_reply_tokens=config.rollout.max_reply_tokens,
        seed=config.seed,
        device=device,
        critic=config.critic if config.critic and config.critic.kind == "head" else None,
    )


def critic_spec(config: RunConfig, plan: CriticPlan, model: Path, device: str) -> CriticSpec:
    """A critic that is a separate model."""
    assert config.critic is not None  # noqa: S101 - it was planned
    return CriticSpec(
        model=model,
        critic=config.critic,
        config=config.learner,
        seed=config.seed,
        mixer=plan.mixer,
        roles=tuple(config.roles),
        device=device,
    )


def usable_cores() -> int:
    """Cores for PyTorch's threads: OMP_NUM_THREADS if it is set."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) else num_cores()


def cores_of(number: int, count: int) -> str:
    """The cores of one engine among several, shared on a small machine. Under a CPU quota engines
    are not bound: containers on one machine would all take the first cores."""
    usable = cores()
    if num_cores() < len(usable):
        return UNBOUND
    share = max(1, len(usable) // count)
    first = number * share % len(usable)
    return ",".join(map(str, usable[first : first + share]))
