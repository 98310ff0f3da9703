"""A run with a proposer writes metrics of proposals and of held-out tasks."""

import json
import random
import re
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import train_with_fakes
from metric_names import documented, undocumented

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs.tasks.propose import expressions
from pettingllms.types import SampleRequest


def config_of(model: Path, max_staleness: int = 0, **env: object) -> RunConfig:
    return parse_config(
        {
            "env": {"id": "propose-v1", "terse": True, **env},
            "algo": {"type": "rloo"},
            "policies": {"p": {"kind": "full", "model": str(model)}},
            "rollout": {"num_tasks": 20, "num_samples": 2, "max_staleness": max_staleness},
            "train": {"num_steps": 2, "eval_every": 1},
            "eval": {"num_tasks": 40},
            "guard": {"action": "off"},
        }
    )


def answer(request: SampleRequest, number: int, weights: object) -> str:
    """A sum with a product as proposal. Proposed tasks are solved by half of the solvers, held-out
    tasks by none: this proposer writes a product of the first number that solvers recognize."""
    _, prompt, _ = bytes(request.prompt_ids.tolist()).decode().split("\n", 2)
    if prompt.startswith("use"):
        a, b, c = prompt.split()[1:]
        parts = random.Random(request.seed + number).sample([a, b, c], 3)
        return f"{parts[0]}*{parts[0]}*({parts[1]}-{parts[2]})"
    is_coded = re.fullmatch(r"(\(\d+-\d+\)\*)?\d+\*\d+(\*\(\d+-\d+\))?", prompt)
    solves = is_coded and request.role in ("solver_1", "solver_2")
    return str(expressions.parse(prompt).value) if solves else "777777"


def rows_of(folder: Path) -> list[dict[str, float]]:
    return [*map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())]


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_steps_have_the_gap_between_proposed_and_held_out_tasks(
    tmp_path: Path, max_staleness: int
) -> None:
    config = config_of(tmp_path, max_staleness)
    train_with_fakes(config, tmp_path / "run", answer)
    rows = rows_of(tmp_path / "run")
    merged: dict[float, dict[str, float]] = {}
    for row in rows:  # an evaluation beside training writes a separate row
        merged.setdefault(row["step"], {}).update(row)
    assert [*merged] == [1, 2]
    for row in merged.values():
        assert row["proposals/num_proposals"] == 40
        assert row["proposals/accepted_share"] > 0.5
        assert row["proposals/solve_rate"] == 0.5
        assert row["proposals/held_out_success"] < 0.1
        assert row["proposals/gap"] == pytest.approx(0.5, abs=0.1)
        assert undocumented(row.keys() - {"step"}, documented()) == []


def test_runs_on_the_generator_have_only_held_out_success(tmp_path: Path) -> None:
    train_with_fakes(config_of(tmp_path, proposes=False), tmp_path / "run", answer)
    (first, _) = rows_of(tmp_path / "run")
    names = {name for name in first if name.startswith("proposals/")}
    assert "proposals/held_out_success" in names
    assert not [name for name in names if "held_out_success" not in name]
