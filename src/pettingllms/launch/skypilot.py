"""SkyPilot: a task. Several nodes form a Ray cluster beside SkyPilot's own one."""

from dataclasses import dataclass
from typing import Any

from pettingllms.errors import ConfigError
from pettingllms.launch.plan import LaunchPlan
from pettingllms.launch.shell import (
    RAY_SETTINGS,
    exports,
    get_models,
    train_lines,
    wait_for_nodes,
)
from pettingllms.preflight.hardware import GPUS
from pettingllms.runtime.yaml_text import to_yaml

FILE = "task.yaml"
CONFIG = "run.toml"
TOKEN = "PETTINGLLMS_RAY_TOKEN"  # noqa: S105 - the name of a variable
"""SkyPilot's own Ray reads RAY_AUTH_TOKEN, so the token of the run has another name."""
PACKAGE = "git+https://github.com/pettingllms/pettingllms"
VENV = "$HOME/petting"
ACCELERATORS = {
    "t4-16": "T4",
    "l4-24": "L4",
    "a10-24": "A10",
    "rtx3090-24": "RTX3090",
    "rtx4090-24": "RTX4090",
    "rtx5090-32": "RTX5090",
    "a100-40": "A100",
    "l40s-48": "L40S",
    "a6000-48": "RTXA6000",
    "a100-80": "A100-80GB",
    "h100-80": "H100",
    "h200-141": "H200",
    "b200-192": "B200",
}
"""SkyPilot's names of the GPUs that `check --gpu` knows."""

CLUSTER = """\
# One Ray node per machine, on other ports than SkyPilot's own Ray.
export RAY_AUTH_TOKEN="${token}"
head=$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | sed -n 1p)
export RAY_ADDRESS=$head:6379
own=$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | sed -n "$((SKYPILOT_NODE_RANK + 1))p")
if [ "$SKYPILOT_NODE_RANK" != 0 ]; then
    for _ in $(seq 60); do
        timeout 2 bash -c "exec 3<>/dev/tcp/$head/6379" 2> /dev/null && break
        sleep 2
    done
    # It ends with the head. How training ended is known there.
    ray start --block --address="$RAY_ADDRESS" --node-ip-address="$own" \\
        --dashboard-agent-listen-port=52366 --num-cpus={cpus} --num-gpus={gpus} || true
    exit 0
fi
ray start --head --block --node-ip-address="$own" --port=6379 --include-dashboard=false \\
    --dashboard-agent-listen-port=52366 --num-cpus={cpus} --num-gpus={gpus} &
cluster=$!
trap 'kill "$cluster" 2> /dev/null || true' EXIT
{wait}"""


@dataclass(frozen=True, slots=True)
class SkyPilotOptions:
    """What a user chooses besides GPUs."""

    image: str = ""
    """Docker image with PettingLLMs; empty: the task installs it."""
    infra: str = ""
    """Cloud, or cloud/region, such as aws/us-east-1; empty: SkyPilot chooses."""


def skypilot_files(plan: LaunchPlan, options: SkyPilotOptions) -> dict[str, str]:
    """The files of a launch by name."""
    plan.require_shipped_code("skypilot")
    task = {
        "name": plan.name,
        "num_nodes": plan.num_nodes,
        "workdir": ".",
        "resources": _resources(plan, options),
        **_secrets(plan),
        "setup": _script(plan, options, _setup(plan, options)),
        "run": _script(plan, options, _run(plan)),
    }
    return {FILE: to_yaml(task), CONFIG: plan.toml}


def secrets(plan: LaunchPlan) -> list[str]:
    """Variables that `sky launch --secret` passes to the task."""
    return [*([TOKEN] if plan.is_cluster else []), *plan.keys]


def _secrets(plan: LaunchPlan) -> dict[str, Any]:
    names = secrets(plan)
    return {"secrets": dict.fromkeys(names)} if names else {}


def _resources(plan: LaunchPlan, options: SkyPilotOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"cpus": f"{plan.cpus_per_node}+"}
    if plan.gpus_per_node:
        if plan.gpu not in ACCELERATORS:
            raise ConfigError(
                "launch skypilot", [f"--gpu: name the GPUs: one of {', '.join(GPUS)}"]
            )
        found["accelerators"] = f"{ACCELERATORS[plan.gpu]}:{plan.gpus_per_node}"
    if plan.memory_gib is not None:
        found["memory"] = f"{plan.memory_gib}+"
    if options.infra:
        found["infra"] = options.infra
    if options.image:
        found["image_id"] = f"docker:{options.image}"
    return found


def _script(plan: LaunchPlan, options: SkyPilotOptions, lines: list[str]) -> str:
    use = [] if options.image else [f'export PATH="{VENV}/bin:$PATH"']
    return "\n".join(["set -eu", *use, *plan.setup, *lines]) + "\n"


def _setup(plan: LaunchPlan, options: SkyPilotOptions) -> list[str]:
    extra = "gpu" if plan.gpus_per_node else "cpu"
    install = [
        "python3 -m pip install --quiet uv",
        f'python3 -m uv venv --quiet --allow-existing --python 3.12 "{VENV}"',
        f'python3 -m uv pip install --quiet --python "{VENV}" "pettingllms[{extra}] @ {PACKAGE}"',
    ]
    return [*([] if options.image else install), *get_models(plan)]


def _run(plan: LaunchPlan) -> list[str]:
    lines = []
    if plan.is_cluster:
        lines += exports(RAY_SETTINGS)
        lines.append(
            CLUSTER.format(
                token=TOKEN,
                cpus=plan.cpus_per_node,
                gpus=plan.gpus_per_node,
                wait=wait_for_nodes(plan.num_nodes),
            ).rstrip("\n")
        )
    run = f"runs/{plan.name}"
    return [*lines, *train_lines(plan, CONFIG, run, cluster=plan.is_cluster, replace=False)]
