"""What a launch needs: nodes and GPUs from the placement plan, models, and environment variables.

A configuration that has no layout on the nodes is refused with the plan's message, before anything
is written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pettingllms.config import RunConfig, to_toml
from pettingllms.config.policies import ApiPolicy
from pettingllms.config.user_code import named_code
from pettingllms.errors import ClusterError, ConfigError
from pettingllms.policies import (
    check_lora_dtype,
    check_placement,
    num_gpus_needed,
    plan_critics,
    plan_models,
)
from pettingllms.preflight.hardware import find_hardware
from pettingllms.preflight.sizing import find_layout, plan_memory
from pettingllms.runtime.resources import GIB

MAX_GPUS_PER_NODE = 8
"""GPUs of a node if the command names none."""
CPUS_PER_GPU = 8
CPUS_WITHOUT_GPU = 8
MEMORY_STEP = 16
"""GiB to a multiple of which planned host memory is rounded up."""
SERVICE_KEYS = {"wandb": "WANDB_API_KEY", "mlflow": "MLFLOW_TRACKING_URI"}
"""Environment variables that trackers read."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for; None and empty: from the plan."""

    num_nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    memory_gib: int | None = None
    gpu: str = ""
    """Name of the GPUs, with which memory is planned too."""
    setup: tuple[str, ...] = ()
    """Shell lines that run first on every node."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A run with its resources, as plain data that any target can write down."""

    name: str
    """Lower-case letters, digits and hyphens."""
    toml: str
    num_nodes: int
    gpus_per_node: int
    cpus_per_node: int
    memory_gib: int | None
    """Host memory of a node; None if it is not known."""
    gpu: str
    models: tuple[str, ...]
    keys: tuple[str, ...]
    """Environment variables that the run reads; their values are never written."""
    code: tuple[str, ...]
    """Classes outside this package that the configuration names."""
    setup: tuple[str, ...]
    num_gpus: int
    """GPUs that the run uses, of all nodes."""

    @property
    def code_files(self) -> list[str]:
        """Classes in files, which other machines do not have."""
        return [name for name in self.code if name.rpartition(":")[0].endswith(".py")]

    @property
    def is_cluster(self) -> bool:
        """Whether the run joins a Ray cluster, instead of starting Ray on one machine."""
        return self.num_nodes > 1

    def require_shipped_code(self, target: str) -> None:
        """Raise ConfigError if the configuration names files that only this machine has."""
        if self.code_files:
            files = ", ".join(self.code_files)
            problem = (
                f"the config names code in files of this machine: {files}; install it in the "
                "image as a package, and name it package.module:Class"
            )
            raise ConfigError(f"launch {target}", [problem])


def plan_launch(config: RunConfig, name: str, request: Request) -> LaunchPlan:
    """The plan of a configuration; ClusterError, with the plan's message, if it does not fit."""
    num_nodes, gpus = _resources(config, request)
    memory = request.memory_gib
    if request.gpu and gpus:
        planned = _host_memory(config, request.gpu, num_nodes, gpus)
        memory = planned if memory is None else memory
    models = [group.model for group in plan_models(config)]
    models += [plan.model for plan in plan_critics(config)]
    return LaunchPlan(
        name=_valid_name(name),
        toml=to_toml(config, used_only=True),
        num_nodes=num_nodes,
        gpus_per_node=gpus,
        cpus_per_node=request.cpus_per_node or gpus * CPUS_PER_GPU or CPUS_WITHOUT_GPU,
        memory_gib=memory,
        gpu=request.gpu.lower(),
        models=tuple(dict.fromkeys(models)),
        keys=tuple(_keys(config)),
        code=tuple(named_code(config.model_dump(mode="json"))),
        setup=request.setup,
        num_gpus=num_gpus_needed(config, plan_models(config)) if gpus else 0,
    )


def _resources(config: RunConfig, request: Request) -> tuple[int, int]:
    """Nodes, and GPUs per node: as asked, or the fewest that have a layout."""
    if config.cluster.address:
        problem = "cluster.address: is set, but the launched run starts its cluster; leave it out"
        raise ConfigError("launch", [problem])
    num_nodes, gpus = request.num_nodes, request.gpus_per_node
    if config.cluster.device == "cpu" or gpus == 0:
        if gpus:
            problem = f'--gpus: is {gpus}, but cluster.device is "cpu"; leave one of them out'
            raise ConfigError("launch", [problem])
        return num_nodes or 1, 0
    groups = plan_models(config)
    check_placement(config, groups)
    check_lora_dtype(config.for_device("gpu"), groups)
    needed = num_gpus_needed(config, groups)
    if not needed:
        return num_nodes or 1, gpus or 0
    missing = ""
    for nodes, per_node in _sizes(needed, num_nodes, gpus):
        layout, missing = find_layout(config, nodes, per_node)
        if layout is not None:
            return nodes, per_node
    raise ClusterError(missing)


def _sizes(needed: int, num_nodes: int | None, gpus: int | None) -> Sequence[tuple[int, int]]:
    """Sizes to try, smallest first. The message of the last one is that of the refusal."""
    if num_nodes is not None and gpus is not None:
        return [(num_nodes, gpus)]
    if num_nodes is not None:
        least = min(ceil(needed / num_nodes), MAX_GPUS_PER_NODE)
        return [(num_nodes, count) for count in range(least, MAX_GPUS_PER_NODE + 1)]
    if gpus is None and needed <= MAX_GPUS_PER_NODE:
        return [(1, needed)]
    per_node = gpus or MAX_GPUS_PER_NODE
    return [(nodes, per_node) for nodes in range(ceil(needed / per_node), needed + 1)]


def _host_memory(config: RunConfig, gpu: str, num_nodes: int, gpus: int) -> int:
    """GiB of host memory per node, rounded up; ClusterError if devices are too small."""
    plan = plan_memory(config, find_hardware(gpu, num_nodes, gpus))
    problems = [one for one in plan.findings() if one.level == "problem"]
    if problems:
        lines = "\n".join(f"  - {one.what}; {one.advice}" for one in problems)
        raise ClusterError(
            f"the run does not fit on {plan.hardware.describe()}:\n{lines}\n"
            f"`pettingllms check CONFIG --gpu {gpu} --nodes {num_nodes} --gpus {gpus}` shows what "
            "to change"
        )
    return ceil(plan.node_bytes / GIB / MEMORY_STEP) * MEMORY_STEP


def _keys(config: RunConfig) -> list[str]:
    """Environment variables that policies and trackers read."""
    played = config.played_policies()
    names = [
        policy.key
        for name, policy in config.policies.items()
        if name in played and isinstance(policy, ApiPolicy) and policy.key
    ]
    names += [key for service, key in SERVICE_KEYS.items() if getattr(config.log, service)]
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise ConfigError("launch", [f"'{name}' is no name of an environment variable"])
    return list(dict.fromkeys(names))


def _valid_name(name: str) -> str:
    """A name that Slurm, Kubernetes, SkyPilot and Docker accept."""
    found = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    return found if found[:1].isalpha() else f"run-{found}".strip("-")
