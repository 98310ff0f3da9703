"""The launches whose files are kept as golden files in tests/data/launch.

`python tests/helpers/launch_cases.py` writes them again after a deliberate change.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pettingllms.config import RunConfig, parse_config
from pettingllms.launch.docker import DockerOptions, docker_files
from pettingllms.launch.kuberay import KubeRayOptions, kuberay_files
from pettingllms.launch.plan import Request, plan_launch
from pettingllms.launch.skypilot import SkyPilotOptions, skypilot_files
from pettingllms.launch.slurm import SlurmOptions, slurm_files

GOLDEN = Path(__file__).parents[1] / "data" / "launch"
TOML = 'seed = 1\n\n[env]\nid = "plan_path-v1"\n'
"""In place of the resolved configuration, which has every key of this version."""
IMAGE = "registry.example/pettingllms:gpu"


def team(**sections: Any) -> RunConfig:
    """Planner: 2 engines of 2 GPUs and 8 ranks. Checker: an engine and a rank. 14 GPUs in all."""
    resources = {"num_replicas": 2, "tensor_parallel": 2, "num_ranks": 8}
    data: dict[str, Any] = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "at_grpo"},
        "policies": {
            "planner": {"kind": "full", "model": "Qwen/Qwen3-8B", "resources": resources},
            "checker": {"kind": "lora", "model": "Qwen/Qwen3-1.7B"},
        },
        "roles": {"planner": "planner", "checker": "checker"},
    }
    return parse_config({**data, **sections})


def launches() -> dict[str, dict[str, str]]:
    """The files of each launch, by its name."""
    logged = {"log": {"wandb": "games"}}
    wide = Request(memory_gib=512, setup=("module load cuda",))
    plan = replace(plan_launch(team(**logged), "Team 14", wide), toml=TOML)
    cpu = replace(plan_launch(team(cluster={"device": "cpu"}), "team", Request()), toml=TOML)
    one = Request(num_nodes=1, gpus_per_node=4)
    small = {"policies": {"both": {"kind": "lora", "model": "Qwen/Qwen3-1.7B"}}}
    roles = {"roles": {"planner": "both", "checker": "both"}}
    single = replace(plan_launch(team(**small, **roles, **logged), "small", one), toml=TOML)
    gpu = replace(plan, gpu="h100-80")
    return {
        "slurm_two_nodes": slurm_files(plan, SlurmOptions("12:00:00", "gpu", "lab")),
        "slurm_one_node": slurm_files(single, SlurmOptions()),
        "slurm_cpu": slurm_files(cpu, SlurmOptions()),
        "kuberay_two_nodes": kuberay_files(plan, KubeRayOptions(IMAGE, namespace="rl")),
        "kuberay_one_node": kuberay_files(single, KubeRayOptions(IMAGE)),
        "skypilot_two_nodes": skypilot_files(gpu, SkyPilotOptions()),
        "skypilot_image": skypilot_files(replace(single, gpu="a100-80"), SkyPilotOptions(IMAGE)),
        "docker": docker_files(single, DockerOptions(IMAGE)),
        "docker_cpu": docker_files(cpu, DockerOptions(IMAGE)),
    }


def write() -> None:
    """Write all golden files."""
    for name, files in launches().items():
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (GOLDEN / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
