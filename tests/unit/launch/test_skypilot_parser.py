"""SkyPilot's own parser reads the task, in a virtual environment that has only SkyPilot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch_cases import GOLDEN

VERSION = "0.14.1"
FOLDER = "PETTINGLLMS_SKYPILOT"
"""Environment variable with a virtual environment that has SkyPilot already."""
PARSE = """\
import json, sys, sky, yaml
config = yaml.safe_load(open(sys.argv[1]))
given = [(name, "secret") for name in config.get("secrets", {})]
task = sky.Task.from_yaml_config(dict(config), secrets_overrides=given)
(resources,) = task.resources
found = {"nodes": task.num_nodes, "accelerators": resources.accelerators, "cpus": resources.cpus}
found |= {"memory": resources.memory, "image": resources.image_id, "secrets": sorted(task.secrets)}
try:
    sky.Task.from_yaml_config({**config, "num_node": 3})
except Exception as error:
    found["wrong"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def skypilot(tmp_path_factory: pytest.TempPathFactory) -> str:
    known = os.environ.get(FOLDER)
    folder = Path(known) if known else tmp_path_factory.mktemp("skypilot") / "venv"
    python = folder / "bin" / "python"
    if known is None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"skypilot=={VERSION}"]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"SkyPilot does not install: {done.stderr[-300:]}")
    return str(python)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "skypilot_two_nodes",
            {
                "nodes": 2,
                "accelerators": {"H100": 8},
                "cpus": "64+",
                "memory": "512+",
                "image": None,
                "secrets": ["PETTINGLLMS_RAY_TOKEN", "WANDB_API_KEY"],
            },
        ),
        (
            "skypilot_image",
            {
                "nodes": 1,
                "accelerators": {"A100-80GB": 4},
                "cpus": "32+",
                "memory": None,
                "image": {"null": "docker:registry.example/pettingllms:gpu"},
                "secrets": ["WANDB_API_KEY"],
            },
        ),
    ],
)
def test_skypilot_reads_the_task(name: str, expected, skypilot: str, tmp_path: Path) -> None:
    (tmp_path / "parse.py").write_text(PARSE)
    home = {
        "HOME": str(tmp_path),
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [skypilot, "parse.py", str(GOLDEN / name / "task.yaml")],
        cwd=tmp_path,
        env=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "num_nodes" in found.pop("wrong")
    assert found == expected
