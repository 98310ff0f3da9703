import random

import pytest

from pettingllms.envs import make_env
from pettingllms.envs.toolkit.answers import as_reply
from pettingllms.envs.toolkit.poker import Hand
from pettingllms.types import Scored

kuhn, leduc = make_env("kuhn_poker-v1"), make_env("leduc_poker-v1")


@pytest.mark.parametrize(
    ("env", "cards", "moves", "won"),
    [
        (kuhn, "KQ", "check check", (1, -1)),
        (kuhn, "JQ", "bet fold", (1, -1)),
        (kuhn, "JQ", "bet call", (-2, 2)),
        (kuhn, "QJ", "check bet fold", (-1, 1)),
        (kuhn, "QJ", "check bet call", (2, -2)),
        (leduc, "JKJ", "check check check check", (1, -1)),
        (leduc, "JKQ", "check check raise call", (-5, 5)),
        (leduc, "QQK", "raise call check check", (0, 0)),
        (leduc, "KJQ", "raise raise fold", (-3, 3)),
        (leduc, "KJQ", "raise raise call raise raise call", (13, -13)),
    ],
)
def test_a_hand_returns_the_chips_won(env, cards: str, moves: str, won: tuple[int, int]) -> None:
    state = Hand(tuple(cards))
    for move in moves.split():
        (role,) = env.acting(state)
        result = env.step(state, {role: as_reply(move)})
        assert result.metrics["illegal"] == 0
        state = result.state
    assert env.acting(state) == ()
    assert result.rewards.agent == dict(zip(env.roles, map(Scored, won), strict=True))
    assert [env.success(state, role) for role in env.roles] == [chips > 0 for chips in won]


@pytest.mark.parametrize(
    "reply", ["check", as_reply("call"), as_reply("raise"), as_reply("all in")]
)
def test_a_reply_that_is_no_legal_move_folds(reply: str) -> None:
    result = kuhn.step(Hand(("K", "J"), ("check", "bet")), {"player_1": reply})
    expected = {"player_1": -1.0, "player_2": 1.0}
    if reply == as_reply("call"):
        expected = {"player_1": 2.0, "player_2": -2.0}
    assert {role: earned.value for role, earned in result.rewards.agent.items()} == expected
    assert bool(result.rewards.process) == (reply != as_reply("call"))


def test_the_board_is_hidden_until_the_second_round() -> None:
    early, late = Hand(("J", "Q", "K")), Hand(("J", "Q", "K"), ("check", "check"))
    for role in leduc.roles:
        assert "king" not in leduc.observe(early, role)[-1].content
        assert "The board: king" in leduc.observe(late, role)[-1].content


def test_a_role_never_sees_the_other_card_before_the_showdown() -> None:
    state = Hand(("J", "K"), ("check", "bet"))
    assert "king" not in kuhn.observe(state, "player_1")[-1].content
    shown = kuhn.step(state, {"player_1": as_reply("call")}).state
    assert "player_2 had the king" in kuhn.draw(shown, "player_1")


def test_starts_are_the_deals_with_their_chances() -> None:
    assert {cards.cards: p for p, cards in kuhn.starts()} == pytest.approx(
        {(a, b): 1 / 6 for a in "JQK" for b in "JQK" if a != b}
    )
    deals = {hand.cards: p for p, hand in leduc.starts()}
    assert len(deals) == 24
    assert sum(deals.values()) == pytest.approx(1)
    assert deals["J", "J", "Q"] == pytest.approx(2 / 6 * 1 / 5 * 2 / 4)


def mean_won(env, mine: str, other: str, num_hands: int = 2000) -> float:
    won = 0.0
    for number, task in enumerate(env.tasks("train")[: num_hands // 2] * 2):
        state, rng = env.reset(task, number), random.Random(number)
        position = number % 2
        while acting := env.acting(state):
            player = mine if env.roles.index(acting[0]) == position else other
            state = env.step(
                state, {acting[0]: env.players[player](env, state, acting[0], rng)}
            ).state
        won += env.won(state)[position]
    return won / num_hands


def test_players_are_as_strong_as_their_names() -> None:
    assert mean_won(kuhn, "nash", "random") > 0.1
    assert mean_won(leduc, "sound", "random") > 0.3
    assert mean_won(leduc, "sound", "noisy") > 0.05
