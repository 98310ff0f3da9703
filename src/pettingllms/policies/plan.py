"""Which policies share a model: the levels L0 to L3 are only this grouping.

Adapters and frozen policies on one base share one copy of it, in the engine and in the learner. A
policy of the kind `full` has a separate copy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pettingllms.config import RunConfig
from pettingllms.config.policies import FrozenPolicy, FullPolicy, LoraPolicy
from pettingllms.registry import ALGORITHMS


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """One model in memory, and the policies that use it."""

    name: str
    model: str
    """Folder or hub name, as the configuration gives it."""
    adapters: Mapping[str, LoraPolicy] = field(default_factory=dict)
    frozen: Mapping[str, FrozenPolicy] = field(default_factory=dict)
    full: tuple[str, FullPolicy] | None = None

    @property
    def trained(self) -> dict[str, LoraPolicy | FullPolicy]:
        """The policies that learn, by name."""
        return {**self.adapters, **(dict([self.full]) if self.full else {})}

    @property
    def publish_method(self) -> str:
        """The engine method that receives new weights of its policies."""
        return "publish_weights" if self.full else "publish_adapter"

    @property
    def snapshot_method(self) -> str:
        """The engine method that receives a snapshot of a policy."""
        return "publish_copy" if self.full else "publish_adapter"

    @property
    def policies(self) -> list[str]:
        """All policies that use this model."""
        return [*self.trained, *self.frozen]


def plan_models(config: RunConfig) -> list[ModelGroup]:
    """The models of a run, in the order of the file. Policies that never act need none."""
    played = config.played_policies()
    adapters: dict[str, dict[str, LoraPolicy]] = {}
    frozen: dict[str, dict[str, FrozenPolicy]] = {}
    groups: dict[str, ModelGroup] = {}
    for name, policy in config.policies.items():
        if name not in played:
            continue
        match policy:
            case FullPolicy():
                groups[name] = ModelGroup(f"full:{name}", policy.model, full=(name, policy))
            case LoraPolicy():
                adapters.setdefault(policy.model, {})[name] = policy
            case FrozenPolicy():
                frozen.setdefault(policy.model, {})[name] = policy
            case _:
                continue  # served elsewhere, or scripted
    shared = [
        ModelGroup(f"base:{at}", model, adapters.get(model, {}), frozen.get(model, {}))
        for at, model in enumerate(dict.fromkeys([*adapters, *frozen]))
    ]
    return [*shared, *groups.values()]


@dataclass(frozen=True, slots=True)
class CriticPlan:
    """A critic that is a separate model, and the policies whose replies it evaluates."""

    name: str
    """Contains a colon, which names of policies cannot."""
    model: str
    policies: tuple[str, ...]
    centralized: bool = False
    """Whether it reads centralized observations instead of a role's prompt."""
    mixer: Literal["sum", "monotonic"] | None = None


def plan_critics(config: RunConfig) -> list[CriticPlan]:
    """The critics that are separate models: one per policy that learns, or one for all."""
    if config.critic is None or config.critic.kind == "head":
        return []
    algorithm = ALGORITHMS.load(config.algo.type)
    models = {name: policy.model for g in plan_models(config) for name, policy in g.trained.items()}
    if algorithm.one_critic():
        model = config.critic.model or next(iter(models.values()), "")
        centralized = "centralized" in algorithm.needs
        return [CriticPlan("critic:team", model, tuple(models), centralized, algorithm.mixer)]
    return [
        CriticPlan(f"critic:{name}", config.critic.model or model, (name,))
        for name, model in models.items()
    ]
