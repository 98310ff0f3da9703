import asyncio
import json
from pathlib import Path

import pytest
from toys import Relay
from typer.testing import CliRunner

from pettingllms.bench import InstantSampler
from pettingllms.cli.main import app
from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.errors import EnvContractError
from pettingllms.training.collect import (
    ALGORITHM_FILE,
    EPISODES_FILE,
    collect,
    scripted_players,
    summarize,
)
from pettingllms.types import Failed, Rewards, read_episodes

FULL = {"kind": "full", "model": "m"}


def mixed_team(**sections) -> RunConfig:
    """X learns, O is scripted."""
    base = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"learner": FULL, "rival": {"kind": "scripted", "player": "minimax"}},
        "roles": {"player_x": "learner", "player_o": "rival"},
    }
    return parse_config({**base, **sections})


def test_policies_that_do_not_learn_get_no_credit_and_stand_in_no_baseline(tmp_path) -> None:
    summary = collect(mixed_team(algo={"type": "dr_grpo"}), tmp_path)
    episodes = list(read_episodes(tmp_path / EPISODES_FILE))
    for episode in episodes:
        for turn in episode.turns:
            assert (turn.credit.advantage is not None) == (turn.policy == "learner")
    assert summary.num_trained_turns == sum(
        t.policy == "learner" for e in episodes for t in e.turns
    )
    by_task: dict[str, dict[str, float]] = {}
    for episode in episodes:
        by_task.setdefault(episode.task.id, {})[episode.id] = episode.turns[0].credit.advantage
    assert all(sum(plays.values()) == pytest.approx(0) for plays in by_task.values())


def test_the_mix_of_rewards_reaches_the_credit(tmp_path: Path) -> None:
    found = []
    for agent in (1.0, 3.0):
        config = mixed_team(algo={"type": "dr_grpo"}, reward={"agent": agent})
        collect(config, tmp_path)
        episodes = read_episodes(tmp_path / EPISODES_FILE)
        found.append(
            [t.credit.advantage for e in episodes for t in e.turns if t.policy == "learner"]
        )
    assert any(found[0])
    assert found[1] == pytest.approx([3 * advantage for advantage in found[0]])


def test_only_policies_that_learn_give_siblings() -> None:
    config = mixed_team()
    players = scripted_players(config, make_env("tic_tac_toe-v1"), "random")
    assert {role: player.trained for role, player in players.items()} == {
        "player_x": True,
        "player_o": False,
    }


def test_what_an_algorithm_must_remember_is_saved_with_the_run(tmp_path: Path) -> None:
    collect(mixed_team(algo={"type": "rae"}), tmp_path)
    state = json.loads((tmp_path / ALGORITHM_FILE).read_text())
    assert set(state) == {"tic_tac_toe-v1/player_x"}
    assert state["tic_tac_toe-v1/player_x"] < 0


class JudgeIsDown(Relay):
    def step(self, state, replies):
        result = super().step(state, replies)
        return type(result)(result.state, Rewards(team=Failed("no judge", "judge")))


class NoStart(Relay):
    def reset(self, task, seed):
        raise RuntimeError("no database")


@pytest.mark.parametrize(
    ("env", "reason"), [(JudgeIsDown, "judge: no judge"), (NoStart, "no database")]
)
def test_every_kind_of_failure_counts(env, reason: str, tmp_path: Path) -> None:
    config = parse_config(
        {
            "env": {"id": f"{__name__}:{env.__name__}"},
            "algo": {"type": "grpo"},
            "policies": {"p": FULL},
        }
    )
    summary = collect(config, tmp_path)
    assert summary.failure_share == 1
    assert reason in summary.failures.most_common(1)[0][0]
    assert summary.num_trained_turns == 0


def test_episodes_are_written_in_the_order_of_tasks_and_plays(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("pettingllms.rollouts.scripted.ScriptedSampler", InstantSampler)
    ended = []
    config = mixed_team(rollout={"num_samples": 12, "num_tasks": 3})
    collect(config, tmp_path, on_episode=lambda episode: ended.append(episode.id))
    ids = [episode.id for episode in read_episodes(tmp_path / EPISODES_FILE)]
    assert ids == [f"train-{task}/{number}" for task in range(3) for number in range(12)]
    assert ids != ended, "the games must not happen to end in order"


def test_tokens_of_continuations_are_counted_once(tmp_path: Path) -> None:
    totals = set()
    for keep in (True, False):
        rollout = {"continuation": "episode", "keep_continuations": keep, "num_tasks": 2}
        config = mixed_team(algo={"type": "at_grpo"}, rollout=rollout)
        summary = collect(config, tmp_path)
        assert 0 < summary.num_extra_tokens < summary.num_tokens
        totals.add(summary.num_tokens)
        again = summarize(list(read_episodes(tmp_path / EPISODES_FILE)), config)
        assert again.num_tokens == summary.num_tokens
    assert len(totals) == 1


def test_tokens_of_replays_are_counted_once(tmp_path: Path) -> None:
    rollout = {"num_tasks": 2, "keep_continuations": True}
    config = mixed_team(algo={"type": "counterfactual"}, rollout=rollout)
    summary = collect(config, tmp_path)
    episodes = list(read_episodes(tmp_path / EPISODES_FILE))
    learns = config.trained_policies()
    held = sum(turn.num_tokens for episode in episodes for turn in episode.turns)
    assert summary.num_tokens == held
    sampled, played = (
        sum(turn.num_tokens for turn in turns if turn.policy in learns)
        for turns in (
            [turn for episode in episodes for turn in episode.turns],
            [turn for episode in episodes for turn in episode.main_turns()],
        )
    )
    assert summary.num_extra_tokens == sampled - played > 0


def test_policies_that_rotate_change_roles_from_task_to_task(tmp_path: Path) -> None:
    config = mixed_team(rollout={"num_tasks": 6, "num_samples": 2, "rotate_roles": True})
    collect(config, tmp_path)
    first = {e.task.id: e.turns[0].policy for e in read_episodes(tmp_path / EPISODES_FILE)}
    assert list(first.values()) == ["learner", "rival"] * 3


STILLBORN = """
from dataclasses import dataclass, field

import pettingllms as pl
from toys import Relay


@dataclass
class Open:
    said: list = field(default_factory=list)


class Shared(Relay):
    '''Siblings would be stepped from one list.'''

    def reset(self, task, seed):
        return Open()


class Generated(Relay):
    def tasks(self, split):
        yield pl.Task(split)
"""


@pytest.fixture
def stillborn(tmp_path) -> str:
    (tmp_path / "stillborn.py").write_text(STILLBORN)
    return f"{tmp_path / 'stillborn.py'}"


def test_a_state_that_siblings_would_share_is_never_played(tmp_path, stillborn) -> None:
    shared = {"env": {"id": f"{stillborn}:Shared"}, "policies": {"p": FULL}}
    config = parse_config({**shared, "algo": {"type": "at_grpo"}})
    with pytest.raises(EnvContractError, match="mutable-state"):
        collect(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_team_is_not_started_for_what_cannot_begin(tmp_path, stillborn) -> None:
    pytest.importorskip("torch")
    from pettingllms.cluster.team import Team

    data = {"env": {"id": f"{stillborn}:Generated"}, "policies": {"p": FULL}}
    config = parse_config({**data, "algo": {"type": "grpo"}})
    with pytest.raises(EnvContractError, match=r"tasks\('train'\) gave <generator"):
        asyncio.run(Team.start(config, print))


def test_check_and_rollout_say_so_as_well(tmp_path, stillborn) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        f'env = {{id = "{stillborn}:Generated"}}\nalgo = {{type = "grpo"}}\n'
        'policies = {p = {kind = "scripted", player = "random"}}\n'
    )
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert checked.exit_code == 1
    assert "[bad-tasks]" in checked.output
    played = CliRunner().invoke(app, ["rollout", str(file), "--out", str(tmp_path / "run")])
    assert isinstance(played.exception, EnvContractError)


def test_score_tells_a_folder_from_a_file_that_is_not_there(tmp_path) -> None:
    given = CliRunner().invoke(app, ["score", str(tmp_path)])
    assert "is a folder; give an episode file" in str(given.exception)
    given = CliRunner().invoke(app, ["score", str(tmp_path / "none.jsonl")])
    assert "no such file" in str(given.exception)
