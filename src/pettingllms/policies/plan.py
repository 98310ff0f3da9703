"""Which policies share a model: the levels L0 to L3 are nothing but this grouping.

Adapters and frozen policies over one base share one copy of it, in the sampler and in the learner.
A policy whose weights are all trained has a copy of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pettingllms.config import RunConfig
from pettingllms.config.policies import FrozenPolicy, FullPolicy, LoraPolicy


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """One model in memory, and the policies that speak through it."""

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
    def policies(self) -> list[str]:
        """Everybody who speaks through this model."""
        return [*self.trained, *self.frozen]


def plan_models(config: RunConfig) -> list[ModelGroup]:
    """The models of a run, in the order of the file. Policies that play no role need none."""
    played = set(config.roles.values())
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
