"""`check CONFIG --nodes N --gpus G` prints where each process is placed."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import Result
from typer.testing import CliRunner

from pettingllms.cli import check_layout
from pettingllms.cli.main import app

POLICIES = {
    "planner": {
        "kind": "full",
        "model": "a",
        "resources": {"num_replicas": 2, "tensor_parallel": 2, "num_ranks": 4},
    },
    "checker": {"kind": "lora", "model": "b"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    config = tmp_path / "two.toml"
    data: dict[str, Any] = {
        "env": {"id": "plan_path-v1"},
        "algo": {"type": "at_grpo"},
        "policies": POLICIES,
        "roles": {"planner": "planner", "checker": "checker"},
    }
    config.write_text(tomli_w.dumps(data))
    return config


def check(path: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["check", str(path), *options])


def test_layout_is_printed_as_a_table_and_a_picture(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_layout.console, "width", 100)
    result = check(path, "--nodes", "2", "--gpus", "6")
    assert result.exit_code == 0, result.output
    assert "Layout on 2 nodes: 10 of 12 GPUs" in result.output
    assert "engines of 'planner'" in result.output
    assert "2 x 2" in result.output
    lines = result.output.splitlines()
    picture = [
        line.strip("│").split("│") for line in lines if "planner" in line and "'" not in line
    ]
    cells = [cell.strip() for line in picture for cell in line]
    assert (cells.count("planner"), cells.count("checker")) == (8, 2)
    labels = [line for line in lines if line.count("│") == 8 and ("L0" in line or "E0" in line)]
    assert sum(line.count("E0") for line in labels) == 3
    assert sum(line.count("E1") for line in labels) == 2
    assert sum(line.count("L3") for line in labels) == 1
    assert sum(line.count("·") for line in labels) == 2


def test_colocated_cells_show_both_processes(path: Path) -> None:
    result = check(path, "--gpus", "5", "cluster.placement=colocated")
    assert result.exit_code == 0, result.output
    for label in ("E0 L0", "E0 L1", "E1 L2", "E1 L3"):
        assert label in result.output
    assert "engines and learner of 'planner'" in result.output


def test_a_layout_that_is_missing_gpus_is_a_problem(path: Path) -> None:
    result = check(path, "--nodes", "3", "--gpus-per-node", "2")
    assert result.exit_code == 1
    assert "needs 10 GPUs" in result.output
    assert "4 missing" in result.output


def test_a_divided_learner_is_noted(path: Path) -> None:
    result = check(path, "--nodes", "4", "--gpus", "3")
    assert result.exit_code == 0, result.output
    assert "learner of 'planner' is divided over 2 nodes" in result.output


def test_layout_as_json(path: Path) -> None:
    result = check(path, "--nodes", "2", "--gpus", "6", "--json")
    found = json.loads(result.output)
    assert found["fits"]
    kinds = [one["kind"] for one in found["layout"]]
    assert kinds == ["engine", "learner", "engine", "engine", "learner"]
    assert sum(len(p["gpus"]) for one in found["layout"] for p in one["places"]) == 10
    small = json.loads(check(path, "--gpus", "1", "--json").output)
    assert (small["fits"], small["layout"]) == (False, None)
    assert "needs 2 GPUs on one node" in small["missing"]


def test_nodes_need_a_config() -> None:
    result = CliRunner().invoke(app, ["check", "--nodes", "2"])
    assert result.exit_code != 0
    assert "--nodes" in str(result.exception) + result.output
