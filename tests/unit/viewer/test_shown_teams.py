"""The team in a designer's reply is read as data; other replies have none."""

import dataclasses
from pathlib import Path

import pytest

from pettingllms.config import RewardConfig, parse_config
from pettingllms.training.collect import collect
from pettingllms.types import Episode, read_episodes
from pettingllms.viewer.episode import shown_episode
from pettingllms.viewer.team_graphs import proposed_team


def recorded(folder: Path, env: str, player: str, **options: object) -> Episode:
    config = parse_config(
        {
            "env": {"id": env, **options},
            "algo": {"type": "grpo"},
            "policies": {"shared": {"kind": "full", "model": "any"}},
            "rollout": {"num_tasks": 1, "num_samples": 2},
        }
    )
    collect(config, folder, player)
    return next(iter(read_episodes(folder / "episodes.jsonl")))


@pytest.mark.parametrize("terse", [False, True])
def test_only_the_designer_has_a_team(tmp_path: Path, terse: bool) -> None:
    episode = recorded(tmp_path, "team_design-v1", "combiner", terse=terse)
    first, *others = shown_episode(episode, RewardConfig(), {})["turns"]
    assert first["team"]["answers"] == "executor_3"
    assert [one["reads"] for one in first["team"]["executors"]] == [("a",), ("b",), ()]
    assert [turn["team"] for turn in others] == [None] * 3


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 9999, '["2","1"]', "<answer>", "<answer>{}</answer>", "\x00", "null"]
)
def test_a_reply_that_is_no_graph_has_no_team(tmp_path: Path, text: str) -> None:
    """A record may be edited: its metrics say valid, its text is not."""
    episode = recorded(tmp_path, "team_design-v1", "combiner")
    assert proposed_team(episode, episode.turns[0]) is not None
    assert proposed_team(episode, dataclasses.replace(episode.turns[0], text=text)) is None


def test_invalid_and_foreign_replies_have_no_team(tmp_path: Path) -> None:
    episode = recorded(tmp_path / "a", "team_design-v1", "combiner", terse=True)
    step = episode.steps[0]
    step.metrics = {**step.metrics, "invalid_graph": 1.0}
    assert proposed_team(episode, episode.turns[0]) is None
    other = recorded(tmp_path / "b", "kuhn_poker-v1", "random")
    assert [proposed_team(other, turn) for turn in other.turns] == [None] * len(other.turns)
