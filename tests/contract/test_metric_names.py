"""Metrics have documented names that do not change by accident.

tests/golden compares the docs with the names that real runs write.
"""

from pathlib import Path

from fakes import train_with_fakes
from metric_names import documented, undocumented

import golden
from pettingllms.config import parse_config

KEPT = Path(__file__).parents[1] / "data" / "metric_names.txt"
SOURCE = Path(__file__).parents[2] / "src" / "pettingllms"


def test_documented_names_are_stable() -> None:
    """After a deliberate change: write the names to the file, keep the old name readable in
    config/renames.py, and list the change as breaking."""
    assert sorted(documented()) == KEPT.read_text().split()


def test_golden_metrics_are_documented() -> None:
    names = [name.replace("*", "any") for name in golden.METRICS.values()]
    assert undocumented(names, documented()) == []


def test_an_undocumented_name_is_found() -> None:
    known = {"roles/ROLE/reward", "judge/JUDGE_first_place_share"}
    names = ["roles/a/reward", "roles/a/award", "judge/x_first_place_share"]
    assert undocumented(names, known) == ["roles/a/award"]


def test_a_run_writes_only_documented_names(tmp_path: Path) -> None:
    import json

    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": str(tmp_path)}},
            "rollout": {"num_tasks": 2, "num_samples": 2},
            "train": {"num_steps": 1, "eval_every": 1},
            "eval": {"num_tasks": 1},
        }
    )
    train_with_fakes(config, tmp_path / "run", lambda request, number, weights: "1")
    (row,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert len(row) > 30
    assert undocumented(row.keys() - {"step"}, documented()) == []
