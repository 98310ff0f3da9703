"""Files of a launch: golden files, and what the targets' own checkers find in them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from launch_cases import GOLDEN, IMAGE, TOML, launches, team
from tools import complaint, tool
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.config import load_config
from pettingllms.errors import ConfigError
from pettingllms.launch.docker import DockerOptions, docker_files
from pettingllms.launch.kuberay import RAY_VERSION, KubeRayOptions, kuberay_files
from pettingllms.launch.plan import Request, plan_launch
from pettingllms.launch.skypilot import ACCELERATORS, SkyPilotOptions, skypilot_files
from pettingllms.preflight.hardware import GPUS

ROOT = Path(__file__).parents[3]
LAUNCHES = launches()
SCRIPTS = sorted(
    (name, file)
    for name, files in LAUNCHES.items()
    for file in files
    if file.endswith((".sh", ".sbatch"))
)


def job(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(LAUNCHES[name]["rayjob.yaml"]))


def embedded(name: str) -> dict[str, str]:
    """Scripts inside the YAML files of a launch."""
    if name.startswith("kuberay"):
        return {"start.sh": job(name)[0]["data"]["start.sh"]}
    if name.startswith("skypilot"):
        task = yaml.safe_load(LAUNCHES[name]["task.yaml"])
        return {"setup.sh": task["setup"], "run.sh": task["run"]}
    return {}


# Golden files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAUNCHES)
def test_files_are_those_of_the_golden_folder(name: str) -> None:
    kept = {file.name: file.read_text() for file in (GOLDEN / name).iterdir()}
    assert LAUNCHES[name] == kept, "deliberate? python tests/helpers/launch_cases.py"


def test_no_golden_folder_is_left_over() -> None:
    assert {one.name for one in GOLDEN.iterdir() if one.is_dir()} == set(LAUNCHES)


def test_no_value_of_a_secret_is_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are made on the machine of the run, and keys come from its environment."""
    for name in ("WANDB_API_KEY", "RAY_AUTH_TOKEN", "HF_TOKEN", "PETTINGLLMS_RAY_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    texts = [text for files in launches().values() for text in files.values()]
    assert [text for text in texts if "hunter2" in text or re.search(r"[0-9a-f]{32}", text)] == []
    assert sum("WANDB_API_KEY" in text for text in texts) >= 5


# Shell --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), SCRIPTS)
def test_scripts_parse(name: str, file: str) -> None:
    assert complaint("bash", "-n", GOLDEN / name / file) == ""


@pytest.mark.parametrize("name", [one for one in LAUNCHES if embedded(one)])
def test_embedded_scripts_parse(name: str, tmp_path: Path) -> None:
    for file, text in embedded(name).items():
        (tmp_path / file).write_text(f"#!/usr/bin/env bash\n{text}")
        assert complaint("bash", "-n", tmp_path / file) == ""
        assert complaint(tool("shellcheck"), tmp_path / file) == ""


@pytest.mark.parametrize(("name", "file"), SCRIPTS)
def test_shellcheck_finds_nothing(name: str, file: str) -> None:
    assert complaint(tool("shellcheck"), GOLDEN / name / file) == ""


def test_shellcheck_would_find_something(tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text("#!/bin/bash\nrm -rf $1/x\n")
    assert "SC2086" in complaint(tool("shellcheck"), tmp_path / "bad.sh")


# KubeRay ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kuberay_one_node", "kuberay_two_nodes"])
def test_ray_job_has_only_fields_that_kuberay_knows(name: str) -> None:
    schema = json.loads((GOLDEN / "rayjob_fields.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(job(name)[1])) == []
    wrong = job(name)[1]
    wrong["spec"]["rayClusterSpec"]["authOption"] = {}
    assert len(list(Draft202012Validator(schema).iter_errors(wrong))) == 1


@pytest.mark.parametrize("name", ["kuberay_one_node", "kuberay_two_nodes"])
def test_config_map_and_pods_pass_the_schemas_of_kubernetes(name: str, tmp_path: Path) -> None:
    """RayJob itself is a custom resource; its pods are Kubernetes' own."""
    validate = tool("kubernetes-validate")
    config, ray_job = job(name)
    cluster = ray_job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **group["template"]}
        for group in groups
    ]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([config, *pods]))
    assert complaint(validate, "--strict", file) == ""
    pods[0]["spec"]["containers"][0]["resource"] = {}
    file.write_text(yaml.safe_dump_all(pods))
    assert "resource" in complaint(validate, "--strict", file)


def test_cluster_of_the_job_has_the_nodes_of_the_plan() -> None:
    cluster = job("kuberay_two_nodes")[1]["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (1, 1, 1)
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], workers)]
    limits = [pod["containers"][0]["resources"]["limits"] for pod in pods]
    assert limits == [{"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}] * 2
    assert "workerGroupSpecs" not in job("kuberay_one_node")[1]["spec"]["rayClusterSpec"]


def test_version_of_ray_is_the_tested_one() -> None:
    assert f"ray=={RAY_VERSION}\n" in (ROOT / "constraints.txt").read_text()


# SkyPilot and Docker ------------------------------------------------------------------------------


def test_every_gpu_has_a_name_in_skypilot() -> None:
    assert set(ACCELERATORS) == set(GPUS)


def test_gpus_must_be_named_for_skypilot() -> None:
    plan = plan_launch(team(), "team", Request())
    with pytest.raises(ConfigError, match="--gpu: name the GPUs: one of t4-16"):
        skypilot_files(plan, SkyPilotOptions())


@pytest.mark.parametrize("name", ["docker", "docker_cpu"])
def test_compose_file_passes_the_schema_of_compose(name: str, tmp_path: Path) -> None:
    check = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    assert complaint(*check, GOLDEN / name / "compose.yaml") == ""
    wrong = (GOLDEN / name / "compose.yaml").read_text().replace("shm_size", "shm")
    (tmp_path / "compose.yaml").write_text(wrong)
    assert "shm" in complaint(*check, tmp_path / "compose.yaml")


def test_docker_runs_one_machine() -> None:
    plan = plan_launch(team(), "team", Request())
    with pytest.raises(ConfigError, match="Docker runs one machine"):
        docker_files(plan, DockerOptions(IMAGE))


def test_code_of_this_machine_is_not_launched_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "import pettingllms as pl\nclass T(pl.Tracker):\n    def log(self, step, values): ...\n"
    )
    config = team(log={"trackers": [f"{tmp_path}/t.py:T"]})
    plan = plan_launch(config, "team", Request(num_nodes=2))
    for make in (
        lambda: kuberay_files(plan, KubeRayOptions(IMAGE)),
        lambda: skypilot_files(plan, SkyPilotOptions()),
        lambda: docker_files(plan, DockerOptions(IMAGE)),
    ):
        with pytest.raises(ConfigError, match=r"names code in files of this machine: .*t\.py:T"):
            make()


# The command --------------------------------------------------------------------------------------


def launch(*words: str | Path):
    return CliRunner().invoke(app, ["launch", *map(str, words)])


CONFIG = ROOT / "configs" / "plan_path_team.toml"


def test_launched_config_is_the_same_run(tmp_path: Path) -> None:
    result = launch("slurm", CONFIG, "rollout.num_tasks=3", "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    assert "1 node, each with 4 GPUs and 32 cores" in result.output
    assert "sbatch job.sbatch" in result.output
    assert load_config(tmp_path / "s/run.toml") == load_config(CONFIG, ["rollout.num_tasks=3"])
    assert (tmp_path / "s/job.sbatch").stat().st_mode & 0o111


def test_dry_run_prints_and_writes_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("slurm", "kuberay", "docker"):
        result = launch(target, CONFIG, "--dry-run")
        assert result.exit_code == 0, result.output
        assert "pettingllms resume" in result.output
        assert "SmolLM2-135M-Instruct" in result.output
    assert list(tmp_path.iterdir()) == []


def test_earlier_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    result = launch("docker", CONFIG, "--out", tmp_path)
    assert isinstance(result.exception, ConfigError)
    assert "already has files" in str(result.exception)


def test_a_config_that_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    result = launch("slurm", CONFIG, "--nodes", 1, "--gpus", 2, "--out", tmp_path / "s")
    assert "the run needs 4 GPUs (2 engines of 1 GPU, 2 learner ranks)" in str(result.exception)
    assert not (tmp_path / "s").exists()


def test_plan_of_a_config_is_quoted() -> None:
    """A setup command is shell on purpose; names and paths are not."""
    files = LAUNCHES["slurm_two_nodes"]
    assert files["run.toml"] == TOML
    assert "module load cuda" in files["job.sbatch"]


# The scripts run ----------------------------------------------------------------------------------

PETTINGLLMS = """\
#!/usr/bin/env bash
echo "$*" >> "$LOG"
[ "$1" = train ] && mkdir -p "${@: -1}" && touch "${@: -1}/config.toml"
[ -n "${SLOW:-}" ] || exit "${CODE:-0}"
trap 'echo interrupted >> "$LOG"; exit 5' INT
# Once the job catches USR1; before that, the signal ends it.
until (( 0x$(awk '/^SigCgt/ {print $2}' "/proc/$PPID/status") & 0x200 )); do sleep 0.1; done
kill -USR1 "$PPID"
for _ in $(seq 100); do sleep 0.1; done
"""


def run_script(script: Path, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script of one node with a `pettingllms` that notes how it was called."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "pettingllms"
    command.write_text(PETTINGLLMS)
    command.chmod(0o755)
    known = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "LOG": str(folder / "log"),
        "WANDB_API_KEY": "k",
    }
    (folder / "run.toml").write_text(TOML)
    return subprocess.run(
        ["/bin/bash", str(script)],
        cwd=folder,
        env={**known, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_second_submission_resumes(tmp_path: Path) -> None:
    script = GOLDEN / "slurm_one_node" / "job.sbatch"
    assert run_script(script, tmp_path).returncode == 0
    assert run_script(script, tmp_path, CODE="3").returncode == 3
    assert (tmp_path / "log").read_text().splitlines() == [
        "train run.toml --out runs/small",
        "resume runs/small",
    ]


def test_a_missing_key_stops_the_job_before_it_starts(tmp_path: Path) -> None:
    done = run_script(GOLDEN / "slurm_one_node" / "job.sbatch", tmp_path, WANDB_API_KEY="")
    assert done.returncode != 0
    assert "set WANDB_API_KEY before you start this run" in done.stderr
    assert not (tmp_path / "log").exists()


def test_signal_before_the_time_limit_reaches_the_run(tmp_path: Path) -> None:
    """The run gets an interrupt, and the job ends with the exit code of the run."""
    done = run_script(GOLDEN / "slurm_one_node" / "job.sbatch", tmp_path, SLOW="1")
    assert (tmp_path / "log").read_text().splitlines()[-1] == "interrupted", done.stderr
    assert done.returncode == 5
