"""The environment keeps the contract and gives the right rewards."""

import pettingllms as pl
from signals import COLORS, LETTERS, Signals, State


def test_environment_keeps_the_contract() -> None:
    pl.check_env(Signals())


def test_step_rewards_only_the_correct_color() -> None:
    env, state = Signals(), State("white", letter="c")
    assert env.step(state, {"receiver": "w"}).rewards.team == pl.Scored(1.0)
    assert env.step(state, {"receiver": "r"}).rewards.team == pl.Scored(0.0)


def test_step_penalizes_an_invalid_reply() -> None:
    result = Signals().step(State("red"), {"sender": "red"})
    assert result.rewards.process["sender"] == pl.Scored(-0.5)
    assert result.state.letter not in LETTERS


def test_observe_hides_the_color_from_the_receiver() -> None:
    env = Signals()
    shown = {str(env.observe(State(color, letter="a"), "receiver")) for color in COLORS}
    assert len(shown) == 1
