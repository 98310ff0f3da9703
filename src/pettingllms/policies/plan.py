"""Which policies share a model: the levels L0 to L3 are only this grouping.

Adapters and frozen policies on one base share one copy of it, in the engine and in the learner. A
policy of the kind `full` has a separate copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pettingllms.config import RunConfig
from pettingllms.config.merge_checks import dtype_problem
from pettingllms.config.policies import FrozenPolicy, FullPolicy, LoraPolicy
from pettingllms.errors import ClusterError
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
    merged: bool = False
    """Whether engines sample with its adapter merged into the base."""

    @property
    def trained(self) -> dict[str, LoraPolicy | FullPolicy]:
        """The policies that learn, by name."""
        return {**self.adapters, **(dict([self.full]) if self.full else {})}

    @property
    def publish_method(self) -> str:
        """The engine method that receives new weights of its policies."""
        return "publish_weights" if self.full or self.merged else "publish_adapter"

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
        ModelGroup(
            f"base:{at}",
            model,
            adapters.get(model, {}),
            frozen.get(model, {}),
            merged=config.inference.merge_single_adapter and model in adapters,
        )
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


def check_lora_dtype(config: RunConfig, groups: Sequence[ModelGroup]) -> None:
    """Raise ClusterError if vLLM on GPUs cannot serve adapters in the dtype of a run: its kernels
    would fail an assertion at the first request."""
    if config.inference.merge_single_adapter:
        dtypes = {"inference": config.inference.dtype, "learner": config.learner.dtype}
        for problem in filter(None, map(dtype_problem, dtypes, dtypes.values())):
            raise ClusterError(problem)
    adapters = [name for group in groups if not group.merged for name in group.adapters]
    if adapters and config.inference.engine == "vllm" and config.inference.dtype == "float32":
        raise ClusterError(
            'inference.dtype = "float32" cannot serve LoRA adapters on GPUs '
            f'(policies.{adapters[0]} has kind = "lora"): vLLM\'s LoRA kernels need 16-bit '
            'weights there; set inference.dtype = "bfloat16", or leave it out'
        )
