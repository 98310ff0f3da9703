"""`eval --exploitability` asks for distances, and shows them by policy."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("ray")

from pettingllms.cli.main import app
from pettingllms.runs.scores import Estimate, RoleScore
from pettingllms.training import evaluate as module
from pettingllms.training.evaluate import Evaluation

FOUND = {"p": {"nash_conv": 0.125, "legal_share": 0.5}}
RUN = """
[env]
id = "kuhn_poker-v1"
[algo]
type = "grpo"
[policies.p]
kind = "full"
model = "m"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def evaluate(config: Any, saved: Any, **rest: Any) -> Evaluation:
        share = Estimate(0.5, 0.4, 0.6)
        scores = {role: RoleScore(share, {1: share}, 4, 0) for role in config.roles}
        return Evaluation(scores, FOUND if config.eval.exploitability else {})

    monkeypatch.setattr(module, "evaluate", evaluate)
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def test_distances_are_shown_if_asked_for(config: Path) -> None:
    asked = CliRunner().invoke(app, ["eval", str(config), "--exploitability"])
    assert asked.exit_code == 0
    assert "nash_conv" in asked.output
    assert "0.1250" in asked.output
    assert "nash_conv" not in CliRunner().invoke(app, ["eval", str(config)]).output


def test_json_has_roles_and_policies_apart(config: Path) -> None:
    asked = json.loads(
        CliRunner().invoke(app, ["eval", str(config), "--exploitability", "--json"]).output
    )
    assert asked["policies"] == FOUND
    assert set(asked["roles"]) == {"player_1", "player_2"}
    plain = json.loads(CliRunner().invoke(app, ["eval", str(config), "--json"]).output)
    assert set(plain) == {"player_1", "player_2"}
