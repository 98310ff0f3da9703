"""The matrix: both sides agree, and games are neither lost nor made."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plays import LOST, linear, rewards

from pettingllms.config import RewardConfig
from pettingllms.league.payoff import Payoff, Tally, game_result, result_of

GAMES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from([0.0, 0.5, 1.0]))
)


@given(GAMES)
def test_what_one_wins_the_other_loses(games: list) -> None:
    payoff = Payoff()
    for game in games:
        payoff.add(*game)
    for player, row in payoff.rows.items():
        for opponent, tally in row.items():
            assert payoff.between(opponent, player) == tally.reversed()
    assert sum(payoff.total(player).num_games for player in "abc") == len(games)
    assert Payoff.from_json(json.loads(json.dumps(payoff.to_json()))) == payoff


def test_a_score_counts_a_draw_half() -> None:
    payoff = Payoff()
    for result in (1.0, 1.0, 0.5, 0.0):
        payoff.add("a", "x", result)
    assert payoff.between("a", "x") == Tally(2, 1, 1)
    assert payoff.between("a", "x").score == 0.625
    assert payoff.between("x", "a").score == 0.375
    assert payoff.between("a", "y").score == 0.5, "of those who never met nothing is known"


def test_games_that_are_handed_over_are_the_others_alone() -> None:
    payoff = Payoff()
    payoff.add("p", "x", 1.0)
    payoff.hand_over("p", "p@10")
    assert payoff.between("p", "x").num_games == payoff.between("x", "p").num_games == 0
    assert payoff.between("x", "p@10") == Tally(losses=1)
    payoff.add("p", "x", 0.0)
    assert payoff.between("p@10", "x") == Tally(wins=1)
    payoff.hand_over("nobody", "nobody@10")


@pytest.mark.parametrize(("reward", "result"), [(2.0, 1.0), (1.0, 0.5), (0.5, 0.0)])
def test_the_player_with_the_higher_reward_wins(reward: float, result: float) -> None:
    episode = linear("t", 0, ("a", rewards()), ("b", rewards(agent={"a": reward, "b": 1.0})))
    assignment = {"a": "p", "b": "x"}
    assert result_of(episode, assignment, "p", "x", RewardConfig()) == result
    assert result_of(episode, assignment, "x", "p", RewardConfig()) == 1 - result


def test_a_player_in_two_roles_counts_by_their_mean() -> None:
    given = rewards(agent={"a": 1.0, "b": 3.0, "c": 0.0})
    episode = linear("t", 0, ("a", rewards()), ("b", rewards()), ("c", given))
    assert result_of(episode, {"a": "p", "b": "x", "c": "x"}, "p", "x", RewardConfig()) == 0.0
    assert result_of(episode, {"a": "x", "b": "p", "c": "x"}, "p", "x", RewardConfig()) == 1.0


def test_a_game_that_failed_has_no_result() -> None:
    episode = linear("t", 0, ("a", rewards(agent={"a": 1.0, "b": 0.0})), failure=LOST)
    assert result_of(episode, {"a": "p", "b": "x"}, "p", "x", RewardConfig()) is None


def test_a_tournaments_game_is_not_won_by_the_others_fine() -> None:
    assignment = {"a": "p", "b": "x"}
    fined = ("a", rewards(process={"a": -0.1}))
    team = linear("t", 0, fined, ("b", rewards(team=1.0)))
    draw = linear("t", 0, fined, ("b", rewards(agent={"a": 0.0, "b": 0.0})))
    for episode in (team, draw):
        assert game_result(episode, assignment, "p", "x") == 0.5
    won = linear("t", 0, fined, ("b", rewards(agent={"a": 0.05, "b": 0.0})))
    assert game_result(won, assignment, "p", "x") == 1.0
    by_replies = linear("t", 0, ("a", rewards({"a": 1.0})), ("b", rewards({"b": 0.0})))
    assert game_result(by_replies, assignment, "p", "x") == 1.0
    assert game_result(linear("t", 0, fined, failure=LOST), assignment, "p", "x") is None
