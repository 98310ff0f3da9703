"""The penalty for long replies, in every kind of return."""

import json

import numpy as np
import pytest
from plays import linear, overwrite, rewards, siblings

from pettingllms.algos import make_algorithm
from pettingllms.algos.credit import (
    rewards_between,
    role_reward,
    sibling_rewards,
    team_reward,
    team_rewards,
    turn_reward,
)
from pettingllms.config import RewardConfig, parse_config
from pettingllms.errors import ConfigError
from pettingllms.types import Episode, Failed, Reward, Scored, episode_to_json
from pettingllms.viewer.rows import row_of

MIX = RewardConfig(overlong_start=100, overlong_buffer=50, overlong_penalty=2.0)
near = pytest.approx


def written(episode: Episode, *lengths: int) -> Episode:
    for turn, length in zip(episode.turns, lengths, strict=True):
        overwrite(turn, response_ids=np.zeros(length, np.int32))
    return episode


def value(reward: Reward) -> float:
    assert isinstance(reward, Scored)
    return reward.value


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (100, 0.0), (101, 0.04), (125, 1.0), (150, 2.0), (151, 2.0), (9999, 2.0)],
)
def test_the_penalty_grows_over_the_buffer(length: int, penalty: float) -> None:
    assert MIX.length_penalty(length) == near(penalty)
    assert RewardConfig().length_penalty(length) == 0


def test_returns_contain_the_penalties_of_their_replies() -> None:
    """a, b, a, b: 1 for a and 10 for the team at the end. Penalties 1, 0.4, 2 and 0."""
    episode = written(
        linear(
            "t",
            0,
            ("a", rewards()),
            ("b", rewards(team=4.0)),
            ("a", rewards()),
            ("b", rewards(agent={"a": 1.0}, team=10.0)),
        ),
        125, 110, 200, 20,
    )  # fmt: skip
    first, second, third, fourth = episode.turns
    assert value(turn_reward(episode, first, MIX)) == near(15 - 1)
    assert value(turn_reward(episode, second, MIX)) == near(14 - 0.4)
    assert value(turn_reward(episode, third, MIX)) == near(11 - 2)
    assert value(turn_reward(episode, fourth, MIX)) == near(10)
    assert value(role_reward(episode, "a", MIX)) == near(15 - 3)
    assert value(role_reward(episode, "b", MIX)) == near(14 - 0.4)
    assert value(team_reward(episode, 0, MIX)) == near(14 - 3.4)
    assert value(team_reward(episode, 2, MIX)) == near(10 - 2)
    assert rewards_between(episode, [first, third], MIX) == near([4 - 1, 11 - 2])
    assert team_rewards(episode, [0, 1, 2, 3], MIX) == near([-1, 4 - 0.4, -2, 10])


def test_the_table_of_the_viewer_shows_the_same_return() -> None:
    episode = written(linear("t", 0, ("a", rewards(team=1.0)), ("b", rewards())), 125, 10)
    row = row_of(episode_to_json(episode), MIX)
    assert json.loads(row["rewards"]) == {"a": near(0.0), "b": near(1.0)}
    assert value(role_reward(episode, "a", MIX)) == near(0.0)


def test_a_failure_stays_a_failure() -> None:
    episode = written(linear("t", 0, ("a", rewards())), 150)
    assert isinstance(turn_reward(episode, episode.turns[0], MIX), Failed)
    assert isinstance(role_reward(episode, "a", MIX), Failed)


def test_scripted_replies_have_no_penalty() -> None:
    episode = written(linear("t", 0, ("a", rewards()), ("b", rewards(team=1.0))), 10, 150)
    overwrite(episode.turns[1], policy_version=None)
    assert team_reward(episode, 0, MIX) == Scored(1.0)


def test_siblings_are_compared_with_their_penalties() -> None:
    episode = written(siblings("t", "a", [1.0, 1.0, 0.0]), 150, 10, 10)
    values = [reward.value for reward in sibling_rewards(episode, episode.turns, MIX)]
    assert values == near([1 - 2, 1, 0])


@pytest.mark.parametrize("algo", ["grpo", "dr_grpo", "dr_mas", "rloo", "magrpo", "reinforce_pp"])
def test_of_equal_rewards_the_longer_reply_is_worse(algo: str) -> None:
    """Rewards 1 and 1 without penalties, 1 and -1 with them."""
    episodes = [
        written(linear("t", n, ("a", rewards(team=1.0))), length)
        for n, length in enumerate((20, 150))
    ]
    plain = make_algorithm(algo)
    plain.assign(episodes)
    assert [episode.turns[0].credit.advantage for episode in episodes] == [0, 0]
    shaped = make_algorithm(algo)
    shaped.reward = MIX
    shaped.assign(episodes)
    short, long = (episode.turns[0].credit.advantage for episode in episodes)
    assert short == near(-long)
    assert short > 0.5


def test_a_penalty_that_no_reply_reaches_is_rejected() -> None:
    config = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"p": {"kind": "full", "model": "m"}},
        "rollout": {"max_reply_tokens": 64},
    }
    parse_config({**config, "reward": {"overlong_start": 32, "overlong_buffer": 32}})
    with pytest.raises(ConfigError, match="set overlong_start to 32"):
        parse_config({**config, "reward": {"overlong_start": 40, "overlong_buffer": 32}})
    with pytest.raises(ConfigError, match="set overlong_buffer"):
        parse_config({**config, "reward": {"overlong_start": 40}})
