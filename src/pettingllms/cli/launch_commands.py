"""Commands of `launch`: the same configuration on Slurm, KubeRay, SkyPilot and Docker."""

from pathlib import Path
from typing import Annotated

import typer

from pettingllms.cli.options import Config, Overrides

launch_app = typer.Typer(
    help="Write the files that run a config on Slurm, KubeRay, SkyPilot or Docker.",
    no_args_is_help=True,
)
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Nodes. Default: the fewest that the run fits on.")
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        "--gpus-per-node",
        min=0,
        help="GPUs per node; 0 for CPUs. Default: as many as the run needs, at most 8.",
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Plan memory on these GPUs too: a name of `check --gpu`, such as h100-80.",
    ),
]
Cpus = Annotated[
    int | None, typer.Option(min=1, help="Cores per node. Default: 8 per GPU, or 8 without.")
]
Memory = Annotated[
    int | None,
    typer.Option(
        metavar="GIB", min=1, help="Host memory per node, in GiB. Default: planned with --gpu."
    ),
]
Setup = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMMAND",
        help="Shell command to run first, such as 'module load cuda'. Repeatable.",
    ),
]
Target = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder to write to. Default: launch/NAME-TARGET."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the files and write nothing.")]
Image = Annotated[
    str, typer.Option(metavar="NAME", help="Image with PettingLLMs. Default: as docker/ builds it.")
]


@launch_app.command("slurm")
def launch_slurm(
    config: Config,
    overrides: Overrides = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    gpu: Gpu = "",
    cpus: Cpus = None,
    memory: Memory = None,
    time: Annotated[str, typer.Option(metavar="LIMIT", help="Time limit of the job.")] = "24:00:00",
    partition: Annotated[str, typer.Option(help="Slurm partition.")] = "",
    account: Annotated[str, typer.Option(help="Slurm account.")] = "",
    setup: Setup = None,
    out: Target = None,
    dry_run: DryRun = False,
) -> None:
    """Write a batch script for Slurm."""
    from pettingllms.cli.launch import Launch, write_launch
    from pettingllms.launch.plan import Request
    from pettingllms.launch.slurm import SlurmOptions, slurm_files

    request = Request(nodes, gpus, cpus, memory, gpu, tuple(setup or ()))
    launch = Launch("slurm", config, tuple(overrides or ()), request, out, dry_run)
    options = SlurmOptions(time, partition, account)
    write_launch(launch, lambda plan: slurm_files(plan, options))


@launch_app.command("kuberay")
def launch_kuberay(
    config: Config,
    overrides: Overrides = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    gpu: Gpu = "",
    cpus: Cpus = None,
    memory: Memory = None,
    image: Image = "",
    claim: Annotated[
        str,
        typer.Option(help="PersistentVolumeClaim with models and runs, mounted at /data."),
    ] = "pettingllms-data",
    keys_from: Annotated[
        str,
        typer.Option("--secret", help="Kubernetes secret with the keys that the config names."),
    ] = "pettingllms-keys",
    namespace: Annotated[str, typer.Option(help="Kubernetes namespace.")] = "",
    setup: Setup = None,
    out: Target = None,
    dry_run: DryRun = False,
) -> None:
    """Write a RayJob for KubeRay."""
    from pettingllms.cli.launch import Launch, image_name, write_launch
    from pettingllms.launch.kuberay import KubeRayOptions, kuberay_files
    from pettingllms.launch.plan import Request

    request = Request(nodes, gpus, cpus, memory, gpu, tuple(setup or ()))
    launch = Launch("kuberay", config, tuple(overrides or ()), request, out, dry_run)
    write_launch(
        launch,
        lambda plan: kuberay_files(
            plan, KubeRayOptions(image or image_name(plan), claim, keys_from, namespace)
        ),
    )


@launch_app.command("skypilot")
def launch_skypilot(
    config: Config,
    overrides: Overrides = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    gpu: Gpu = "",
    cpus: Cpus = None,
    memory: Memory = None,
    image: Annotated[
        str,
        typer.Option(metavar="NAME", help="Image with PettingLLMs. Default: the task installs it."),
    ] = "",
    infra: Annotated[
        str, typer.Option(help="Cloud or cluster, such as aws/us-east-1. Default: the cheapest.")
    ] = "",
    setup: Setup = None,
    out: Target = None,
    dry_run: DryRun = False,
) -> None:
    """Write a task for SkyPilot."""
    from pettingllms.cli.launch import Launch, write_launch
    from pettingllms.launch.plan import Request
    from pettingllms.launch.skypilot import SkyPilotOptions, skypilot_files

    request = Request(nodes, gpus, cpus, memory, gpu, tuple(setup or ()))
    launch = Launch("skypilot", config, tuple(overrides or ()), request, out, dry_run)
    options = SkyPilotOptions(image, infra)
    write_launch(launch, lambda plan: skypilot_files(plan, options))


@launch_app.command("docker")
def launch_docker(
    config: Config,
    overrides: Overrides = None,
    gpus: Gpus = None,
    gpu: Gpu = "",
    cpus: Cpus = None,
    memory: Memory = None,
    image: Image = "",
    setup: Setup = None,
    out: Target = None,
    dry_run: DryRun = False,
) -> None:
    """Write a compose file and a script for Docker on one machine."""
    from pettingllms.cli.launch import Launch, image_name, write_launch
    from pettingllms.launch.docker import DockerOptions, docker_files
    from pettingllms.launch.plan import Request

    request = Request(1, gpus, cpus, memory, gpu, tuple(setup or ()))
    launch = Launch("docker", config, tuple(overrides or ()), request, out, dry_run)
    write_launch(launch, lambda plan: docker_files(plan, DockerOptions(image or image_name(plan))))
