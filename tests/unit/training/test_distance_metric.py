"""Distance from perfect play as a metric of a run: read from engines, by policy, when asked for."""

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from fakes import train_with_fakes

from pettingllms.config import RunConfig, parse_config
from pettingllms.envs import make_env
from pettingllms.errors import ConfigError, ExploitabilityError
from pettingllms.exploitability import Tree, lost, nash_conv
from pettingllms.exploitability.nash_conv import read

MODEL = {"kind": "full", "model": "m"}


def config(distance: bool = True, **sections: Any) -> RunConfig:
    data = {
        "env": {"id": "kuhn_poker-v1", "terse": True},
        "algo": {"type": "grpo"},
        "policies": {"p": MODEL},
        "rollout": {"num_tasks": 2, "num_samples": 2},
        "train": {"num_steps": 4, "eval_every": 2},
        "eval": {"num_tasks": 2, "exploitability": distance},
        "log": {"episodes": False},
    }
    return parse_config(data | sections)


def said_by(weights: int) -> Any:
    """The policy of a fake engine: the log-prob of a reply is -1 - weights for each letter."""

    def policy(infos: Any) -> list[list[float]]:
        raw = [[math.exp(-(1 + weights) * len(r)) for r in info.replies] for info in infos]
        return [[p / sum(some) for p in some] for some in raw]

    return policy


def answer(request: Any, number: int, weights: int) -> str:
    return "check" if number else "bet"


def test_a_run_measures_it_when_it_evaluates_with_the_weights_of_the_moment(
    tmp_path: Path,
) -> None:
    run = train_with_fakes(config(), tmp_path / "run", answer)
    metrics = {step: found["policies"]["p"] for step, found in run.watched.metrics.items()}
    assert ["nash_conv" in metrics[step] for step in (1, 2, 3, 4)] == [False, True, False, True]
    env = make_env("kuhn_poker-v1", terse=True)
    assert metrics[2]["nash_conv"] == pytest.approx(nash_conv(env, said_by(2)))
    assert metrics[4]["nash_conv"] == pytest.approx(nash_conv(env, said_by(4)))
    assert metrics[4]["nash_conv"] != pytest.approx(metrics[2]["nash_conv"], abs=1e-4)
    shares = [math.exp(-3 * 5) + math.exp(-3 * 3), 2 * math.exp(-3 * 4)]
    assert metrics[2]["legal_share"] == pytest.approx(sum(shares) / 2)


def test_it_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    run = train_with_fakes(config(distance=False), tmp_path / "run", answer)
    assert not any("nash_conv" in found["policies"]["p"] for found in run.watched.metrics.values())


def test_each_of_two_policies_has_its_own_share_and_a_script_has_none(tmp_path: Path) -> None:
    """The first player joins late: at step 2 its policy is untrained."""
    tree = Tree(make_env("kuhn_poker-v1", terse=True))
    late = MODEL | {"join_step": 3}
    for other in (late, {"kind": "scripted", "player": "nash"}):
        two = config(policies={"p": MODEL, "q": other}, roles={"player_1": "q", "player_2": "p"})
        run = train_with_fakes(two, tmp_path / str(other["kind"]), answer)
        found = run.watched.metrics[2]["policies"]
        expected = lost(tree, read(tree, said_by(2)), "player_2")
        assert found["p"]["nash_conv"] == pytest.approx(expected)
        assert ("q" in found) == (other is late)
        if other is late:
            expected = lost(tree, read(tree, said_by(0)), "player_1")
            assert found["q"]["nash_conv"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"id": "sudoku-v1"}, "'sudoku-v1' has no enumerable game tree"),
        ({"id": "kuhn_poker-v1", "solo": True}, "'kuhn_poker-v1' by one role has no enumerable"),
    ],
)
def test_environments_without_one_are_refused_with_the_configuration(env: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(env=env)


def test_a_team_with_a_script_in_it_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    tiny = {"num_colors": 1, "num_ranks": 2, "hand_size": 1, "max_lives": 1, "max_information": 1}
    team = config(
        env={"id": "hanabi-v1", **tiny},
        policies={"p": MODEL, "q": {"kind": "scripted"}},
        roles={"player_1": "p", "player_2": "q"},
    )
    with pytest.raises(ExploitabilityError, match="player_2 have no engine"):
        train_with_fakes(team, tmp_path / "run", answer)
