"""The loop as it is, over fake engines: a collapse pauses the run, and a healthy run goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import FakeRun, legal_cell, train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import CheckpointError, ConfigError, PausedError
from pettingllms.runs.checkpoint import load_checkpoint
from pettingllms.runs.folder import RunFolder
from pettingllms.types import SampleRequest

COLLAPSED = 4
"""Weights, which count updates, from which a policy repeats one reply: those of step 5."""


def config_of(**sections: Any) -> RunConfig:
    base: dict[str, Any] = {
        "env": {"id": "tic_tac_toe-v1", "max_opening": 6, "terse": True},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "lora", "model": "m"}},
        "rollout": {"num_tasks": 12, "num_samples": 2},
        "train": {"num_steps": 14, "save_every": 1, "keep_checkpoints": 1},
        "log": {"episodes": False},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return parse_config(base)


def one_reply(request: SampleRequest, number: int, weights: int) -> str:
    return "5"


def collapsing(request: SampleRequest, number: int, weights: int) -> str:
    return legal_cell(request, number, weights) if weights < COLLAPSED else "5"


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def checkpoints_of(folder: Path) -> list[int]:
    return sorted(
        int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").iterdir()
    )


def paused(config: RunConfig, folder: Path, answer: Any) -> str:
    with pytest.raises(PausedError) as caught:
        train_with_fakes(config, folder, answer)
    return str(caught.value)


def test_a_policy_that_repeats_one_reply_pauses_the_run_within_ten_steps(tmp_path: Path) -> None:
    said = paused(config_of(), tmp_path / "run", one_reply)
    assert len(steps_of(tmp_path / "run")) == 5
    assert checkpoints_of(tmp_path / "run") == [5], "saved where it stopped"
    assert "after step 5, a policy has collapsed" in said
    assert "Most frequent reply: '5' (100%)" in said
    assert "no good checkpoint" in said


def test_a_healthy_run_is_not_paused(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", legal_cell)
    assert len(run.watched.metrics) == 14
    assert all(step["policies/p/distinct_replies"] > 3 for step in steps_of(tmp_path / "run"))
    assert checkpoints_of(tmp_path / "run") == [13, 14]


def test_the_last_good_checkpoint_is_kept_and_named(tmp_path: Path) -> None:
    """The checkpoint of step 4 holds weights that have collapsed already; that of step 3 played
    step 4, and well."""
    said = paused(config_of(), tmp_path / "run", collapsing)
    assert len(steps_of(tmp_path / "run")) == 9
    assert checkpoints_of(tmp_path / "run") == [3, 9]
    assert f"`pettingllms resume {tmp_path / 'run'} --step 3`" in said
    state, files = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-000003")
    assert files["p"]["weights"] == b"3"
    assert state.step == 3


def test_resume_goes_on_and_the_guard_goes_on_watching(tmp_path: Path) -> None:
    paused(config_of(), tmp_path / "run", collapsing)
    said = paused(config_of(), tmp_path / "run", collapsing)
    assert [step["step"] for step in steps_of(tmp_path / "run")] == [*range(1, 15)]
    assert "--step 3`" in said, "still the last good one"
    assert checkpoints_of(tmp_path / "run") == [3, 14]


def test_one_may_go_back_to_the_good_checkpoint(tmp_path: Path) -> None:
    paused(config_of(), tmp_path / "run", collapsing)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(CheckpointError, match="no checkpoint of step 4; available steps: 9, 3"):
        folder.go_back(4)
    folder.go_back(3)
    run = train_with_fakes(config_of(), tmp_path / "run", legal_cell)
    assert min(run.watched.metrics) == 4
    assert [step["step"] for step in steps_of(tmp_path / "run")] == [*range(1, 15)]


def test_a_run_that_is_killed_is_paused_at_the_same_step(tmp_path: Path) -> None:
    train_with_fakes(config_of(), tmp_path / "run", collapsing, dies_after=7)
    paused(config_of(), tmp_path / "run", collapsing)
    assert len(steps_of(tmp_path / "run")) == 9
    assert checkpoints_of(tmp_path / "run") == [3, 9]


def test_a_guard_may_only_speak(tmp_path: Path) -> None:
    config = config_of(guard={"action": "warn"})
    run = train_with_fakes(config, tmp_path / "run", one_reply)
    assert len(run.watched.metrics) == 14
    alarms = [text for text in run.watched.said if "different replies over" in text]
    assert [text.split(":")[0] for text in alarms] == ["ALARM after step 5", "ALARM after step 10"]


def against_anchors(answer: Any, folder: Path) -> FakeRun:
    config = config_of(
        guard={"anchors": ["random", "minimax"], "min_replies": 1.0},
        train={"eval_every": 2},
        eval={"num_tasks": 12},
    )
    return train_with_fakes(config, folder, answer)


def test_success_against_anchors_is_measured_and_guarded(tmp_path: Path) -> None:
    run = against_anchors(legal_cell, tmp_path / "well")
    for step, metrics in run.watched.metrics.items():
        assert ("anchor_random" in metrics["policies"]["p"]) == (step % 2 == 0)
    rates = [m["policies"]["p"].get("anchor_random", 0.5) for m in run.watched.metrics.values()]
    assert all(0.2 < rate < 0.8 for rate in rates)
    policies = {request.policy for engines in run.engines for request in engines.requests}
    assert policies == {"p"}, "anchors are scripts"

    with pytest.raises(PausedError, match="success against 'random' of 0%") as caught:
        against_anchors(failing, tmp_path / "ill")
    assert "2 evaluations in a row" in str(caught.value)
    assert steps_of(tmp_path / "ill")[-1]["step"] == 8, "worse at 6 and at 8"


def failing(request: SampleRequest, number: int, weights: int) -> str:
    """Legal moves, then different nonsense for every board."""
    return legal_cell(request, number, weights) if weights < 5 else f"{request.seed}?"


def test_an_anchor_may_play_well_by_degrees(tmp_path: Path) -> None:
    config = config_of(
        guard={"anchors": ["minimax~0.3"]},
        train={"num_steps": 1, "eval_every": 1},
        eval={"num_tasks": 4},
    )
    run = train_with_fakes(config, tmp_path / "run", legal_cell)
    assert "anchor_minimax~0.3" in run.watched.metrics[1]["policies"]["p"]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"guard": {"anchors": ["minmax"]}, "train": {"eval_every": 1}}, "did you mean 'minimax'"),
        ({"guard": {"anchors": ["random~7"]}}, "guard.anchors: .* write a number from 0 to 1"),
        ({"guard": {"anchors": ["random"]}}, "train.eval_every is 0; set it"),
        (
            {
                "guard": {"anchors": ["random"]},
                "train": {"eval_every": 1},
                "env": {"solo": True},
            },
            "has one role",
        ),
        ({"guard": {"min_reply": 2.0}}, "did you mean 'min_replies'"),
    ],
)
def test_anchors_that_cannot_be_played_are_refused(sections: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        config_of(**sections)
