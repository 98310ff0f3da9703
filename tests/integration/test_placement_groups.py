"""Layouts as Ray's placement groups: 8 simulated nodes with 8 simulated GPUs each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]
pytest.importorskip("ray")
HERE = Path(__file__).parent


def placed(tmp_path: Path, first: int, last: int, every: int) -> dict[str, Any]:
    result = tmp_path / "found.json"
    paths = [str(HERE.parent / "helpers"), *sys.path]
    done = subprocess.run(
        [sys.executable, HERE / "drive_placement.py", *map(str, (first, last, every)), result],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.read_text())
    print(found)
    return found


@pytest.mark.slow
def test_ten_random_plans_are_placed_as_planned(tmp_path: Path) -> None:
    found = placed(tmp_path, 0, 10, 5)
    assert found["plans"]["placed"] + found["plans"].get("refused", 0) == 10
    assert found["plans"]["with actors"] >= 1
    assert found["cpus"]["engines"] == {"processes": 8, "nodes": 8, "shares": [1]}
    assert found["cpus"]["ranks"] == {"processes": 2, "nodes": 2, "shares": [1]}
    assert found["cpus"]["workers per node"] == [2] * 8
    assert "in use by other programs" in found["said"]["held"]
    assert "waited 1 s" in found["said"]["held"]
    assert "has 0 free GPUs of" in found["said"]["taken"]


@pytest.mark.slow
def test_two_hundred_random_plans_are_placed_and_none_is_pending(tmp_path: Path) -> None:
    found = placed(tmp_path, 0, 200, 20)
    assert found["plans"]["placed"] + found["plans"]["refused"] == 200
    assert found["plans"]["refused"] >= 10
