"""The environment keeps the contract, and pays what it should."""

import pettingllms as pl
from signals import COLOURS, LETTERS, Signals, State


def test_it_keeps_the_contract() -> None:
    pl.check_env(Signals())


def test_a_colour_that_arrives_is_paid_and_another_is_not() -> None:
    env, heard = Signals(), State("white", letter="c")
    assert env.step(heard, {"receiver": "w"}).rewards.team == pl.Scored(1.0)
    assert env.step(heard, {"receiver": "r"}).rewards.team == pl.Scored(0.0)


def test_a_reply_that_is_no_word_of_the_game_has_a_price() -> None:
    told = Signals().step(State("red"), {"sender": "red"})
    assert told.rewards.process["sender"] == pl.Scored(-0.5)
    assert told.state.letter not in LETTERS


def test_the_receiver_is_not_shown_the_colour() -> None:
    env = Signals()
    shown = {str(env.observe(State(colour, letter="a"), "receiver")) for colour in COLOURS}
    assert len(shown) == 1
