"""Credit from values against numbers worked out by hand, on one game of three turns.

    step 0: a replies; reward 1 for a
    step 1: b replies; reward 0.5 for b and 2 for the team
    step 2: a replies; reward 3 for a and 4 for the team

From its first turn to its second a gets 1 + 2 = 3, from then on 3 + 4 = 7. b gets
0.5 + 2 + 4 = 6.5. Each reply has two tokens, so each turn has three values.
"""

import math

import numpy as np
import pytest
from plays import IDS, LOST, advantages, linear, overwrite, rewards

from pettingllms.algos import make_algorithm
from pettingllms.algos.actor_critic import gae
from pettingllms.config import RewardConfig
from pettingllms.types import NO_REWARDS, Episode, Failed, Rewards, Scored, Step

near = pytest.approx
NAN = math.nan
VALUES = [[0.5, 1, 2], [1, 2, 9], [4, 3, 5]]
HALVES = {"gamma": 0.5, "gae_lambda": 0.5, "standardize": False}
BOTH = ["ppo", "mappo"]


def game(number: int = 0, values: list[list[float]] | None = None) -> Episode:
    episode = linear(
        "t",
        number,
        ("a", rewards(process={"a": 1.0})),
        ("b", rewards(process={"b": 0.5}, team=2.0)),
        ("a", rewards(agent={"a": 3.0}, team=4.0)),
    )
    for one, row in zip(episode.turns, values or VALUES, strict=True):
        one.credit.values = np.array(row, dtype=np.float32)
    return episode


def returns(episode: Episode) -> list[list[float] | None]:
    return [None if t.credit.returns is None else t.credit.returns.tolist() for t in episode.turns]


def same(expected: list[list[float]]) -> object:
    return [near(row, nan_ok=True) for row in expected]


@pytest.mark.parametrize("name", BOTH)
def test_ppo_over_turns(name: str) -> None:
    """a: 7 - 4 = 3, then (3 + 0.5 x 4 - 0.5) + 0.25 x 3 = 5.25. b: 6.5 - 1 = 5.5."""
    play = game()
    make_algorithm(name, **HALVES).assign([play])
    assert advantages(play) == near([5.25, 5.5, 3])
    assert returns(play) == same([[5.75, NAN, NAN], [6.5, NAN, NAN], [7, NAN, NAN]])
    assert [t.credit.advantages for t in play.turns] == [None] * 3


@pytest.mark.parametrize("name", BOTH)
def test_ppo_over_tokens(name: str) -> None:
    """a's chain has the values 0.5, 1, 4, 3 and the rewards 0, 3, 0, 7 on leaving them:

        7 - 3 = 4
        0 + 0.5 x 3 - 4 = -2.5,  -2.5 + 0.25 x 4 = -1.5
        3 + 0.5 x 4 - 1 = 4,     4 + 0.25 x -1.5 = 3.625
        0 + 0.5 x 1 - 0.5 = 0,   0 + 0.25 x 3.625 = 0.90625

    b's has the values 1, 2 and the rewards 0, 6.5: 4.5, then 0 + 0.25 x 4.5 = 1.125.
    """
    play = game()
    make_algorithm(name, level="token", **HALVES).assign([play])
    found = [t.credit.advantages.tolist() for t in play.turns if t.credit.advantages is not None]
    assert found == same([[0.90625, 3.625], [1.125, 4.5], [-1.5, 4]])
    assert advantages(play) == near([2.265625, 2.8125, 1.25]), "means, for logs"
    assert returns(play) == same([[1.40625, 4.625, NAN], [2.125, 6.5, NAN], [2.5, 7, NAN]])


def test_lambda_1_gives_returns_less_values_and_lambda_0_one_step() -> None:
    whole, one = game(), game()
    make_algorithm("ppo", gae_lambda=1.0, standardize=False).assign([whole])
    assert advantages(whole) == near([3 + 7 - 0.5, 6.5 - 1, 7 - 4])
    make_algorithm("ppo", gae_lambda=0.0, standardize=False).assign([one])
    assert advantages(one) == near([3 + 4 - 0.5, 6.5 - 1, 7 - 4])
    tokens = game()
    make_algorithm("ppo", level="token", gae_lambda=1.0, standardize=False).assign([tokens])
    assert tokens.turns[0].credit.advantages.tolist() == near([10 - 0.5, 10 - 1])
    assert tokens.turns[2].credit.advantages.tolist() == near([7 - 4, 7 - 3])


def test_gae_of_perfect_values_is_zero_whatever_lambda() -> None:
    gains, values = [1.0, 0.0, 8.0], [1 + 0.5 * 4, 0.5 * 8, 8]
    for gae_lambda in (0.0, 0.3, 1.0):
        assert gae(gains, values, 0.5, gae_lambda) == near([0, 0, 0])


@pytest.mark.parametrize("level", ["turn", "token"])
def test_chains_cross_neither_roles_nor_plays(level: str) -> None:
    """Other values of b, or of another play, change nothing for a."""
    options = {**HALVES, "level": level}
    alone = game()
    make_algorithm("ppo", **options).assign([alone])
    other = game(0, [VALUES[0], [50, 60, 70], VALUES[2]])
    beside = game(1, [[-9, -9, -9]] * 3)
    make_algorithm("ppo", **options).assign([beside, other])
    for at in (0, 2):
        assert other.turns[at].credit.advantage == alone.turns[at].credit.advantage
        assert returns(other)[at] == near(returns(alone)[at], nan_ok=True)
    assert other.turns[1].credit.advantage != alone.turns[1].credit.advantage


@pytest.mark.parametrize("name", ["ppo", "mappo", "vdn", "qmix"])
def test_what_failed_is_in_nothing(name: str) -> None:
    good, failed, unjudged = game(), game(1), game(2)
    make_algorithm(name).assign([good])
    expected = advantages(good)
    failed.failure = LOST
    for one in failed.turns:
        one.credit.failure = LOST
    unjudged.steps[1].rewards = rewards(team=Failed("no judge", "judge"))
    algorithm = make_algorithm(name)
    algorithm.assign([failed, good, unjudged])
    assert advantages(good) == expected
    for play in (failed, unjudged):
        assert advantages(play) == [None] * 3
        assert returns(play) == [None] * 3
    asked = {
        id(t) for joint_action in algorithm.joint_actions([failed, good]) for t in joint_action
    }
    assert asked == {id(t) for t in good.turns}


def test_a_failed_turn_is_left_out_of_its_roles_chain_and_round() -> None:
    play = game()
    play.turns[2].credit.failure = LOST
    make_algorithm("ppo", **HALVES).assign([play])
    assert advantages(play) == near([3 + 7 - 0.5, 5.5, None])
    make_algorithm("vdn", standardize=False).assign([play])
    assert advantages(play) == near([6, 6, None])


def test_advantages_are_standardised_over_the_policys_batch() -> None:
    """Of policy_a: 9.5 and 3 (mean 6.25, deviation 6.5 / sqrt 2). b's stands alone, so it is 0."""
    play = game()
    make_algorithm("ppo", gae_lambda=1.0).assign([play])
    half = math.sqrt(0.5)
    assert advantages(play) == near([half, 0, -half], rel=1e-5)
    tokens = game()
    make_algorithm("ppo", level="token", gae_lambda=1.0).assign([tokens])
    drawn = [number for at in (0, 2) for number in tokens.turns[at].credit.advantages.tolist()]
    raw = np.array([9.5, 9, 3, 4])
    assert drawn == near(((raw - raw.mean()) / raw.std(ddof=1)).tolist(), rel=1e-5)
    assert tokens.turns[0].credit.advantage == near(float(np.mean(drawn[:2])))


def test_a_reply_without_tokens_is_a_state_of_its_chain() -> None:
    """a: 3 - 0.5 + 4 = 6.5 with lambda 0, as if its first reply were one action."""
    play = game(0, [[0.5], VALUES[1], VALUES[2]])
    overwrite(play.turns[0], response_ids=IDS[:0])
    make_algorithm("ppo", level="token", gae_lambda=0.0, standardize=False).assign([play])
    assert play.turns[0].credit.advantage == near(6.5)
    assert play.turns[0].credit.advantages is None
    assert play.turns[2].credit.advantages.tolist() == near([3 - 4, 7 - 3])


def test_without_a_critic_nothing_is_expected() -> None:
    play = game()
    for one in play.turns:
        one.credit.values = None
    make_algorithm("ppo", gae_lambda=1.0, standardize=False).assign([play])
    assert advantages(play) == near([10, 6.5, 7])


def test_the_next_algorithm_starts_clean() -> None:
    play = game()
    make_algorithm("ppo", level="token").assign([play])
    make_algorithm("reinforce_pp").assign([play])
    assert all(t.credit.advantages is None and t.credit.returns is None for t in play.turns)


# Rounds, VDN, QMIX


@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_a_mix(name: str) -> None:
    """The team gets 0, 2 and 4. With gamma 0.5 the returns are 0 + 1 + 1 = 2, 2 + 2 = 4 and 4.
    Minus the values of the mix: 2 - 3, 4 - 3, 4 - 8.5. A critic that was not asked predicts 0.
    Each reply is mixed alone, because later roles have read it."""
    play = game()
    algorithm = make_algorithm(name, gamma=0.5, standardize=False)
    algorithm.assign([play])
    assert advantages(play) == near([2, 4, 4])
    for one, mixed in zip(play.turns, (3.0, 3.0, 8.5), strict=True):
        one.credit.counterfactual_value = mixed
    algorithm.assign([play])
    assert advantages(play) == near([-1, 1, -4.5])
    assert returns(play) == same([[2, NAN, 2], [4, NAN, 4], [4, NAN, 4]])
    assert algorithm.joint_actions([play]) == [[one] for one in play.turns]
    make_algorithm(name).assign([play])
    assert returns(play) == same([[6, NAN, 6], [6, NAN, 6], [4, NAN, 4]])


def test_replies_that_enter_one_step_are_mixed() -> None:
    play = game()
    play.turns[1].links.step = 0
    play.steps[0].turns, play.steps[1].turns = (0, 1), ()
    assert make_algorithm("vdn").joint_actions([play]) == [play.turns[:2], play.turns[2:]]


@pytest.mark.parametrize("name", ["vdn", "qmix"])
def test_only_team_rewards_count_for_a_decomposition(name: str) -> None:
    play = linear("t", 0, ("a", rewards(process={"a": 1.0})))
    make_algorithm(name).assign([play])
    assert advantages(play) == [None]
    weighed = make_algorithm(name)
    weighed.reward = RewardConfig(team=3.0)
    play = game()
    weighed.assign([play])
    assert play.turns[0].credit.returns[0] == near(18)


@pytest.mark.parametrize("name", BOTH)
def test_a_cut_is_bootstrapped_from_the_last_turn_of_each_role(name: str) -> None:
    """a's last turn was worth 4 when it began, so its first has 3 + 0.5 x 4 - 0.5 = 4.5. What the
    last turns led to is not known: they are not trained on, and b has no other."""
    play = game()
    play.steps.append(Step(2, (), limit="cut after 3 steps"))
    play.last = 3
    assert play.is_bootstrapped
    make_algorithm(name, **HALVES).assign([play])
    assert [turn.credit.advantage for turn in play.turns] == [near(4.5), None, None]
    assert returns(play) == [near([5, NAN, NAN], nan_ok=True), None, None]


def test_a_cut_reply_is_bootstrapped_from_its_last_token() -> None:
    """a's chain has the values 0.5, 1, 4, 3, the rewards 0, 3, 0, 0, and the value 5 after it:

    0 + 0.5 x 5 - 3 = -0.5
    0 + 0.5 x 3 - 4 = -2.5,  -2.5 + 0.25 x -0.5 = -2.625
    3 + 0.5 x 4 - 1 = 4,     4 + 0.25 x -2.625 = 3.34375
    0 + 0.5 x 1 - 0.5 = 0,   0 + 0.25 x 3.34375 = 0.8359375
    """
    play = game()
    play.steps[2].rewards, play.steps[2].limit = NO_REWARDS, "the model ends here"
    overwrite(play.turns[2], finish="length", limit="the model ends here")
    make_algorithm("ppo", level="token", **HALVES).assign([play])
    first, between, last = (turn.credit.advantages for turn in play.turns)
    assert first.tolist() == near([0.8359375, 3.34375])
    assert last.tolist() == near([-2.625, -0.5])
    assert between is None


def test_a_cut_with_a_reward_is_an_end_like_any_other() -> None:
    play = game()
    play.steps.append(Step(2, (), Rewards(agent={"a": Scored(-10.0)}), limit="cut after 3 steps"))
    play.last = 3
    make_algorithm("ppo", **HALVES).assign([play])
    assert play.turns[2].credit.advantage == near(7 - 10 - 4)
