"""Docker: a compose file and a script with the same `docker run`, for one machine."""

import shlex
from dataclasses import dataclass
from typing import Any

from pettingllms.errors import ConfigError
from pettingllms.launch.plan import LaunchPlan
from pettingllms.launch.shell import require_variables, train_lines
from pettingllms.runtime.yaml_text import to_yaml

COMPOSE = "compose.yaml"
SCRIPT = "run.sh"
START = "start.sh"
CONFIG = "run.toml"
WORK = "/work"
MODELS = "/models"
SHARED_MEMORY_GIB = 16


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """The image that has PettingLLMs with its engines."""

    image: str


def docker_files(plan: LaunchPlan, options: DockerOptions) -> dict[str, str]:
    """The files of a launch by name."""
    plan.require_shipped_code("docker")
    if plan.is_cluster:
        problem = (
            f"--nodes: is {plan.num_nodes}, but Docker runs one machine; use slurm, kuberay or "
            "skypilot, or give --gpus"
        )
        raise ConfigError("launch docker", [problem])
    start = ["#!/usr/bin/env bash", "set -eu", *plan.setup]
    start += train_lines(plan, f"{WORK}/{CONFIG}", f"{WORK}/runs/{plan.name}", cluster=False)
    return {
        COMPOSE: to_yaml(_compose(plan, options)),
        SCRIPT: _script(plan, options),
        START: "\n".join(start) + "\n",
        CONFIG: plan.toml,
    }


def _compose(plan: LaunchPlan, options: DockerOptions) -> dict[str, Any]:
    gpus = {"driver": "nvidia", "count": plan.gpus_per_node, "capabilities": ["gpu"]}
    limits: dict[str, Any] = {"cpus": str(plan.cpus_per_node)}
    if plan.memory_gib is not None:
        limits["memory"] = f"{plan.memory_gib}g"
    resources: dict[str, Any] = {"limits": limits}
    if plan.gpus_per_node:
        resources["reservations"] = {"devices": [gpus]}
    models = "${PETTINGLLMS_MODELS:?set PETTINGLLMS_MODELS to your folder of models}"
    service = {
        "image": options.image,
        "command": ["bash", f"{WORK}/{START}"],
        "working_dir": WORK,
        "init": True,
        "stop_signal": "SIGINT",
        "stop_grace_period": "10m",
        "shm_size": f"{SHARED_MEMORY_GIB}gb",
        "environment": [f"PETTINGLLMS_MODELS={MODELS}", *plan.keys],
        "volumes": [f".:{WORK}", f"{models}:{MODELS}:ro"],
        "deploy": {"resources": resources},
    }
    return {"name": plan.name, "services": {"train": service}}


def _script(plan: LaunchPlan, options: DockerOptions) -> str:
    """The same as the compose file, without Compose."""
    words = ["docker", "run", "--rm", "--init", "--stop-signal=SIGINT", f"--name={plan.name}"]
    words += [f"--cpus={plan.cpus_per_node}", f"--shm-size={SHARED_MEMORY_GIB}g"]
    words += [f"--memory={plan.memory_gib}g"] if plan.memory_gib is not None else []
    words += [f"--gpus={plan.gpus_per_node}"] if plan.gpus_per_node else []
    words += [f"--env={key}" for key in plan.keys]
    words += [f"--env=PETTINGLLMS_MODELS={MODELS}", f"--workdir={WORK}"]
    quoted = [shlex.quote(word) for word in words]
    quoted += [f'--volume="$PWD:{WORK}"', f'--volume="$PETTINGLLMS_MODELS:{MODELS}:ro"']
    quoted += [shlex.quote(word) for word in (options.image, "bash", f"{WORK}/{START}")]
    lines = [
        "#!/usr/bin/env bash",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        *require_variables(["PETTINGLLMS_MODELS", *plan.keys]),
        "exec " + " \\\n    ".join([" ".join(quoted[:2]), *quoted[2:]]),
    ]
    return "\n".join(lines) + "\n"
