"""Training with a co-player schedule over fake engines, also after a crash."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.types import SampleRequest, episode_files, read_episodes
from pettingllms.types.episode_files import step_of


def config_of(**sections: Any) -> RunConfig:
    base = {
        "env": {"id": "toys:Duel"},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "lora", "model": "m"}, "weak": {"kind": "scripted"}},
        "roles": {"a": "p", "b": "weak"},
        "rollout": {"num_tasks": 4, "num_samples": 2},
        "train": {"num_steps": 6, "save_every": 1, "keep_checkpoints": 99, "eval_every": 2},
        "eval": {"num_tasks": 2},
        "co_players": {
            "window": 1,
            "phases": [
                {"members": {"weak": 1.0}, "until_step": 2},
                {"members": {"p@1": 1.0}, "until_step": 4},
                {"members": {"script:random": 1.0, "p@3": 1.0}},
            ],
        },
        "seed": 3,
    }
    return parse_config({**base, **sections})


def by_weights(request: SampleRequest, number: int, weights: int) -> str:
    """The number of batches it has learned from: a snapshot shows its age."""
    return str((weights + number) % 10)


def co_players(folder: Path) -> dict[int, set[tuple[str, str]]]:
    """By step: who was b, and for policies what they said."""
    found = {}
    for file in episode_files(folder):
        turns = [turn for episode in read_episodes(file) for turn in episode.turns]
        others = [turn for turn in turns if turn.role == "b"]
        said = {(t.policy, t.text if t.policy.startswith("p") else "") for t in others}
        found[step_of(file) or 0] = said
    return found


def test_the_schedule_says_who_sits_there_and_snapshots_are_as_they_were(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", by_weights)
    found = co_players(tmp_path / "run")
    assert found[1] == found[2] == {("weak", "")}
    assert found[3] == found[4] == {("p@1", "1")}
    assert found[5] | found[6] == {("script:random", ""), ("p@3", "3")}
    metrics = run.watched.metrics
    assert [metrics[step]["co_players"]["phase"] for step in range(1, 7)] == [1, 1, 2, 2, 3, 3]
    assert metrics[2]["co_players"]["switched"] == 1
    assert {"before", "after", "drop"} <= metrics[3]["co_players"].keys()
    assert "forgetting" in metrics[6]["co_players"]
    assert metrics[6]["co_players"].keys() >= {"eval_phase_1", "eval_phase_2", "eval_phase_3"}
    assert any("co-players change after step 2" in text for text in run.watched.said)
    assert {policy for _, policy in run.trained} == {"p"}


def test_a_run_that_was_killed_resumes_with_the_same_co_players(tmp_path: Path) -> None:
    train_with_fakes(config_of(), tmp_path / "whole", by_weights)
    train_with_fakes(config_of(), tmp_path / "cut", by_weights, dies_after=4)
    train_with_fakes(config_of(), tmp_path / "cut", by_weights)
    assert co_players(tmp_path / "cut") == co_players(tmp_path / "whole")
