"""The loop with a league over fake engines: assignments, weights, and recovery from a crash.

A policy's reply is the number of batches it was trained on, so a snapshot shows its age.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("openskill")

from fakes import train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ConfigError
from pettingllms.runs.checkpoint import State, load_checkpoint
from pettingllms.types import Episode, SampleRequest, episode_files, read_episodes
from pettingllms.types.episode_files import step_of

LORA = {"kind": "lora", "model": "m"}
FULL = {"kind": "full", "model": "m"}


def config_of(**sections: Any) -> RunConfig:
    base = {
        "env": {"id": "toys:Duel"},
        "algo": {"type": "grpo"},
        "policies": {"p": LORA},
        "rollout": {"num_tasks": 4, "num_samples": 2},
        "train": {"num_steps": 8, "save_every": 1, "keep_checkpoints": 99},
        "league": {"snapshot_every": 2, "rule": "uniform", "share": 0.5, "anchors": ["random"]},
        "inference": {"engine": "torch"},
        "seed": 3,
    }
    data = {**base, **sections}
    return parse_config({name: section for name, section in data.items() if section is not None})


def by_weights(request: SampleRequest, number: int, weights: int) -> str:
    return str(weights % 10)


def episodes_of(folder: Path) -> dict[int, list[Episode]]:
    return {step_of(file) or 0: list(read_episodes(file)) for file in episode_files(folder)}


def state_of(folder: Path, step: int) -> State:
    return load_checkpoint(folder / "checkpoints" / f"step-{step:06d}")[0]


def pool_of(folder: Path, step: int) -> list[dict[str, Any]]:
    pool: list[dict[str, Any]] = state_of(folder, step).components["league"]["pool"]
    return pool


def met(folder: Path) -> list[Any]:
    return [
        [[(turn.role, turn.policy, turn.text) for turn in episode.turns] for episode in some]
        for _, some in sorted(episodes_of(folder).items())
    ]


@pytest.mark.parametrize("kind", [LORA, FULL], ids=["lora", "full"])
def test_a_snapshot_plays_with_the_weights_it_was_taken_with(kind: Any, tmp_path: Path) -> None:
    train_with_fakes(config_of(policies={"p": kind}), tmp_path / "run", by_weights)
    seen = set()
    for step, some in episodes_of(tmp_path / "run").items():
        for turn in (turn for episode in some for turn in episode.turns):
            if turn.policy == "p":
                assert turn.text == str(step - 1), "the newest weights"
            elif turn.policy.startswith("p@"):
                seen.add(turn.policy)
                assert turn.text == turn.policy.removeprefix("p@")
                assert turn.policy_version == int(turn.text)
    assert len(seen) > 2


def test_opponents_are_excluded_from_training_and_roles_are_equal(tmp_path: Path) -> None:
    run = train_with_fakes(config_of(), tmp_path / "run", by_weights)
    players: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for some in episodes_of(tmp_path / "run").values():
        for episode in some:
            names = {turn.policy for turn in episode.turns}
            kinds[min(names - {"p"}, default="self")[:2]] += 1
            for turn in episode.turns:
                assert (turn.credit.advantage is not None) == (turn.policy == "p")
                if turn.policy == "p" and len(names) == 2:
                    players[turn.role] += 1
    assert kinds == {"p@": 32, "sc": 6, "se": 26}, "half, a tenth, and the rest, of 64"
    assert abs(players["a"] - players["b"]) <= 2, "a task is two episodes"
    assert run.trained == [(step, "p") for step in range(1, 9)]
    assert run.watched.metrics[8]["league"]["size"] == 5
    assert run.watched.metrics[8]["league"]["score_snapshots"] > 0.5


@pytest.mark.parametrize("rule", ["latest", "uniform", "prioritised"])
@pytest.mark.parametrize("dies_after", [3, 6])
def test_a_run_that_was_killed_resumes_with_the_same_opponents(
    rule: str, dies_after: int, tmp_path: Path
) -> None:
    league = {"snapshot_every": 2, "rule": rule, "anchors": ["random"], "max_snapshots": 3}
    train = {"num_steps": 8, "save_every": 2, "keep_checkpoints": 2}
    config = config_of(league=league, train=train)
    train_with_fakes(config, tmp_path / "whole", by_weights)
    train_with_fakes(config, tmp_path / "cut", by_weights, dies_after=dies_after)
    again = train_with_fakes(config, tmp_path / "cut", by_weights)
    assert min(again.watched.metrics) == (dies_after - 1) // 2 * 2 + 1, "from the last checkpoint"
    assert met(tmp_path / "cut") == met(tmp_path / "whole")
    whole, cut = (state_of(tmp_path / name, 8) for name in ("whole", "cut"))
    assert json.dumps(cut.components["league"]) == json.dumps(whole.components["league"]), (
        "pool, matrix, ratings and counts"
    )
    assert len(whole.components["league"]["pool"]) == 3
    assert cut == whole


def test_checkpoints_hold_the_pool_once_on_disk(tmp_path: Path) -> None:
    train_with_fakes(config_of(), tmp_path / "run", by_weights)
    checkpoints = tmp_path / "run" / "checkpoints"
    for step in (2, 5, 8):
        pool = [f"p@{old}" for old in range(0, step + 1, 2)]
        assert [f"{s['policy']}@{s['step']}" for s in pool_of(tmp_path / "run", step)] == pool
        for name in pool:
            file = checkpoints / f"step-{step:06d}" / "policies" / name / "weights"
            assert file.read_text() == name.removeprefix("p@")
    paths = checkpoints.glob("*/policies/p@2/weights")
    assert len({path.stat().st_ino for path in paths}) == 1, "one file with many names"


def test_snapshots_that_are_let_go_leave_engines_and_checkpoints(tmp_path: Path) -> None:
    league = {"snapshot_every": 1, "max_snapshots": 3, "rule": "uniform"}
    run = train_with_fakes(config_of(league=league), tmp_path / "run", by_weights)
    state, saved = load_checkpoint(tmp_path / "run/checkpoints/step-000008")
    kept = {f"p@{snapshot['step']}" for snapshot in state.components["league"]["pool"]}
    assert len(kept) == 3
    assert {"p@0", "p@8"} < kept
    assert set(saved) == {"p"} | kept == set(state.weight_hashes)
    assert set(run.engines[0].weights) == {"p"} | kept


def test_an_exploiter_learns_against_the_policy_alone(tmp_path: Path) -> None:
    config = config_of(
        policies={"p": LORA, "hunter": LORA},
        roles={"a": "p", "b": "p"},
        league={"snapshot_every": 4, "exploiters": ["hunter"], "exploiter_share": 0.5},
    )
    run = train_with_fakes(config, tmp_path / "run", by_weights)
    assert {policy for _, policy in run.trained} == {"p", "hunter"}
    for some in episodes_of(tmp_path / "run").values():
        for episode in some:
            names = {turn.policy for turn in episode.turns}
            if "hunter" in names:
                assert names == {"hunter", "p"}
                assert all(turn.credit.advantage is not None for turn in episode.turns)
    pool = [snapshot["policy"] for snapshot in pool_of(tmp_path / "run", 8)]
    assert pool == ["p", "hunter"] * 3


def test_policies_that_rotate_play_each_role_equally_often(tmp_path: Path) -> None:
    config = config_of(
        policies={"p": LORA, "rival": {"kind": "scripted"}},
        roles={"a": "p", "b": "rival"},
        rollout={"num_tasks": 3, "num_samples": 2, "rotate_roles": True},
        league=None,
    )
    train_with_fakes(config, tmp_path / "run", by_weights)
    players: Counter[tuple[str, str]] = Counter()
    for some in episodes_of(tmp_path / "run").values():
        for episode in some:
            assert {turn.policy for turn in episode.turns} == {"p", "rival"}
            assert len({e.turns[0].policy for e in some if e.task.id == episode.task.id}) == 1
            players.update((turn.policy, turn.role) for turn in episode.turns)
    assert set(players.values()) == {24}


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"policies": {"p": FULL}, "inference": {}}, "the engine serves only one"),
        ({"policies": {"p": {"kind": "scripted"}}}, "one policy that learns"),
        (
            {"policies": {"p": LORA, "q": LORA}, "roles": {"a": "p", "b": "q"}},
            "[roles] names p, q",
        ),
        ({"league": {"anchors": ["minimax"]}}, "league.anchors: 'duel-v1' has no player"),
        ({"league": {"anchors": ["random~2"]}}, "write a number from 0 to 1"),
        ({"league": {"exploiters": ["hunter"]}}, "no policy that learns is called 'hunter'"),
        ({"algo": {"type": "at_grpo"}}, "a league would rate the best of several replies"),
        ({"league": {"exploiters": ["p"]}}, "'p' has a role; name a policy without roles"),
        (
            {"league": {"snapshot_every": 1, "share": 0.8, "anchors": ["random"], "anchor_share": 0.3}},  # noqa: E501
            "sum to 1.1",
        ),
    ],
)  # fmt: skip
def test_leagues_that_cannot_be_held_are_refused(sections: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(**sections)
    assert problem in str(caught.value)
