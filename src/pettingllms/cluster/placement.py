"""Placement: what each process of a run is started with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig
from pettingllms.config.policies import image_problem
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError, ModelError
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.learners.critic import CriticSpec
from pettingllms.learners.learner_spec import LearnerSpec
from pettingllms.policies import CriticPlan, ModelGroup, critic_resources, group_resources
from pettingllms.runtime.resources import CoreShare


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
    config: RunConfig, group: ModelGroup, model: Path, device: str, shares: Sequence[CoreShare]
) -> list[EngineSpec]:
    """One engine per replica of a model, each with its share of cores."""
    league = config.league
    num_kept = league.max_snapshots if league and league.snapshot_every else 0
    num_co_players = len(config.co_players.snapshots()) if config.co_players else 0
    num_met = (min(league.num_opponents, num_kept) if league else 0) + num_co_players
    adapters = {} if group.merged else group.adapters
    num_snapshots = num_kept + num_co_players if adapters else 0
    return [
        EngineSpec(
            model=model,
            config=group_resources(config, group).inference(config.inference),
            policies=tuple(group.policies),
            max_rank=max((policy.rank for policy in adapters.values()), default=0),
            num_adapters=len(adapters),
            num_versions=2 if config.rollout.max_staleness else 1,
            in_flight=config.updates_in_flight and group.publish_method == "publish_weights",
            adapts_vision=any(policy.supports_images_by for policy in adapters.values()),
            num_snapshots=num_snapshots,
            num_opponents=min(num_met, num_snapshots),
            device=device,
            core_share=share,
            loopback=not config.cluster.address,
            sleeps=config.cluster.placement == "colocated" and bool(group.trained),
        )
        for share in shares
    ]


def learner_spec(config: RunConfig, group: ModelGroup, model: Path, device: str) -> LearnerSpec:
    """The learner of a model."""
    if problem := config.learner.optimizer_problem(device):
        raise ConfigError("config", [problem])
    return LearnerSpec(
        model=model,
        policies=group.trained,
        config=group_resources(config, group).learner(config.learner),
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
        config=critic_resources(config).learner(config.learner),
        seed=config.seed,
        mixer=plan.mixer,
        roles=tuple(config.roles),
        device=device,
    )
