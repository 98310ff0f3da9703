"""`launch`: plan a configuration, and write or print the files of a target."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from pettingllms import __version__
from pettingllms.cli.console import console, warn
from pettingllms.errors import ConfigError
from pettingllms.launch import docker, kuberay, skypilot, slurm
from pettingllms.launch.plan import LaunchPlan, Request, plan_launch
from pettingllms.runs.folder import write_whole
from pettingllms.runs.trust import load_user_config

LAUNCHES = Path("launch")
EXECUTABLE = (".sh", ".sbatch")
LOCAL = (".", "/", "~")
"""First characters of models that are folders."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the command line asks for, apart from options of a target."""

    target: str
    config: Path
    overrides: tuple[str, ...]
    request: Request
    out: Path | None
    dry_run: bool

    @property
    def name(self) -> str:
        """The name of the run: that of the file, or of its folder for a `config.toml`."""
        stem = self.config.stem
        return self.config.resolve().parent.name if stem in ("config", "run") else stem


def image_name(plan: LaunchPlan) -> str:
    """The image that docker/ builds."""
    return f"pettingllms:{__version__}-{'gpu' if plan.gpus_per_node else 'cpu'}"


def write_launch(launch: Launch, make: Callable[[LaunchPlan], dict[str, str]]) -> None:
    """Write the files of a launch, or print them."""
    config = load_user_config(launch.config, launch.overrides)
    plan = plan_launch(config, launch.name, launch.request)
    files = make(plan)
    for note in _notes(launch.target, plan):
        warn(f"note: {note}")
    if launch.dry_run:
        for name, text in files.items():
            console.out(f"# {name}\n{text}", highlight=False)
        return
    folder = launch.out or LAUNCHES / f"{plan.name}-{launch.target}"
    if folder.exists() and any(folder.iterdir()):
        problem = "already has files; give another folder with --out, or remove it"
        raise ConfigError(str(folder), [problem])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(folder / name, text)
        if Path(name).suffix in EXECUTABLE:
            (folder / name).chmod(0o755)
    nodes = "1 node" if plan.num_nodes == 1 else f"{plan.num_nodes} nodes"
    size = f"{nodes}, each with {plan.gpus_per_node} GPUs and {plan.cpus_per_node} cores"
    console.print(f"Wrote [bold]{escape(str(folder))}[/]: {size}", soft_wrap=True)
    command = f"cd {shlex.quote(str(folder))} && {_command(launch.target, plan)}"
    console.print(f"Start it with [bold]{escape(command)}[/]", soft_wrap=True)


def _command(target: str, plan: LaunchPlan) -> str:
    match target:
        case "slurm":
            return f"sbatch {slurm.SCRIPT}"
        case "kuberay":
            return f"kubectl apply -f {kuberay.FILE}"
        case "skypilot":
            given = "".join(f" --secret {name}" for name in skypilot.secrets(plan))
            token = (
                f"export {skypilot.TOKEN}=$(openssl rand -hex 32) && " if plan.is_cluster else ""
            )
            return f"{token}sky launch{given} {skypilot.FILE}"
        case _:
            return f"docker compose -f {docker.COMPOSE} up"


def _notes(target: str, plan: LaunchPlan) -> list[str]:
    """What the user has to provide."""
    notes = []
    folders = [name for name in plan.models if name.startswith(LOCAL)]
    if folders and (target != "slurm" or plan.is_cluster):
        where = "every node" if plan.is_cluster else "the machine of the run"
        notes.append(f"{', '.join(folders)} must exist at the same path on {where}")
    if target == "slurm" and plan.is_cluster and plan.code_files:
        notes.append(f"{', '.join(plan.code_files)} must exist at the same path on every node")
    idle = plan.num_nodes * plan.gpus_per_node - plan.num_gpus
    if idle:
        total = plan.num_nodes * plan.gpus_per_node
        notes.append(f"the plan uses {plan.num_gpus} of {total} GPUs")
    if plan.keys and target == "kuberay":
        notes.append(f"the Kubernetes secret must have the keys {', '.join(plan.keys)}")
    return notes
