"""The wheel and the sdist carry what commands need, and work outside a clone."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]


def build(source: Path, target: str, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a virtual environment with the wheel and this one's other packages."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "shared.pth").write_text("\n".join(shared))
    return folder / "bin" / "pettingllms"


def run(command: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HOME": str(cwd)}
    return subprocess.run(
        [str(command), *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_carries_configs_experiments_results_and_viewer(wheel: Path) -> None:
    found = names(wheel)
    for kind, folder in (("configs", "configs"), ("experiments", "experiments")):
        files = [one for one in (ROOT / folder).rglob("*") if one.is_file()]
        shipped = [f"pettingllms/shipped/{kind}/{f.relative_to(ROOT / folder)}" for f in files]
        kept = [name for name in shipped if "__pycache__" not in name]
        assert kept
        assert set(kept) <= found
    assert "pettingllms/shipped/results/plan_path/results.json" in found
    static = (ROOT / "src/pettingllms/viewer/static").rglob("*")
    needed = {str(file.relative_to(ROOT / "src")) for file in static if file.is_file()}
    assert needed <= found
    assert {"pettingllms/py.typed", "pettingllms/cli/project/config.toml"} <= found
    assert "pettingllms_verifiers/__init__.py" in found
    assert not [name for name in found if name.startswith(("tests/", "docs/"))]


def test_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build(source, "wheel", tmp_path / "again")
    assert names(again) == names(wheel)


def test_commands_work_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    version = run(installed, tmp_path, "--version")
    assert version.returncode == 0, version.stderr
    listed = run(installed, tmp_path, "list", "configs")
    assert "plan_path_team" in listed.stdout, listed.stderr
    assert run(installed, tmp_path, "list", "envs").returncode == 0
    for config in ("plan_path_team", "configs/plan_path_team.toml"):
        done = run(installed, tmp_path, "show-config", config)
        assert done.returncode == 0, done.stderr
        assert 'id = "plan_path-v1"' in done.stdout
    rollout = run(installed, tmp_path, "rollout", "plan_path_team", "--out", "out")
    assert rollout.returncode == 0, rollout.stderr
    assert (tmp_path / "out" / "episodes.jsonl").is_file()
    viewed = run(installed, tmp_path, "view", "out", "--export", "out.html")
    assert viewed.returncode == 0, viewed.stderr
    made = run(installed, tmp_path, "init", "project")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "project" / "signals.py").is_file()


def test_experiments_are_found_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "reproduce")
    assert done.returncode == 2
    known = sorted(file.parent.name for file in (ROOT / "experiments").glob("*/experiment.toml"))
    assert ", ".join(known) in done.stderr
    wrong = run(installed, tmp_path, "reproduce", "tic_tac_to")
    assert "did you mean 'tic_tac_toe'" in wrong.stderr


@pytest.mark.slow
@pytest.mark.smoke
def test_reproduce_works_outside_a_clone(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "reproduce", "tic_tac_toe", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs/experiments/tic_tac_toe-quick/results.json").is_file()


def test_a_folder_here_has_precedence(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    text = (ROOT / "configs" / "plan_path_team.toml").read_text()
    (tmp_path / "configs" / "mine.toml").write_text(f"# My own config.\n{text}")
    listed = run(installed, tmp_path, "list", "configs")
    assert "My own config." in listed.stdout
    assert "kuhn_poker" not in listed.stdout
