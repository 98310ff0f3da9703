"""Short trainings give the stored results of golden.json, bit by bit; see golden.py."""

import json
from pathlib import Path
from typing import Any

import pytest
from metric_names import documented, undocumented
from running import run
from scenarios import SCENARIOS, WARM_STARTS

import golden

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("openskill")


@pytest.fixture(scope="module")
def stored() -> Any:
    return json.loads(golden.GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of this code on this machine."""
    folder = tmp_path_factory.mktemp("golden")
    out = folder / "found.json"
    run(folder / "log.txt", str(Path(golden.__file__)), "--out", str(out), seconds=900)
    return json.loads(out.read_text(encoding="utf-8"))


def test_golden_stores_every_scenario(stored: Any) -> None:
    assert stored["scenarios"].keys() == WARM_STARTS.keys() | SCENARIOS.keys()


def test_golden_runs_write_only_documented_metrics(found: Any) -> None:
    assert len(found["metric_names"]) > 60
    assert undocumented(found["metric_names"], documented()) == []


@pytest.mark.parametrize("name", [*WARM_STARTS, *SCENARIOS])
def test_golden_results_are_reproduced(name: str, stored: Any, found: Any) -> None:
    other = golden.other_machine(stored, found)
    one, two = (results["scenarios"][name] for results in (stored, found))
    lines = list(golden.differences(one, two, exact=not other))
    assert not lines, "\n".join([other, *lines[: golden.MAX_LINES]])
    if other:
        pytest.skip(f"floats agree to {golden.TOLERANCE:g}, hashes not compared: {other}")
