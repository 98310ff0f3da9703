"""Scripted debaters: right, wrong, by chance, and with the majority."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.answering import other_answer
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any number, or any of the choices."""
    choices = state.problem.choices
    return str(env.reply_of(rng.choice(choices) if choices else str(rng.randint(0, 99))))


def play_solver(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The truth."""
    return str(env.reply_of(state.problem.answer))


def play_wrong(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """An answer that could be right, and is not."""
    return str(env.reply_of(other_answer(state.problem, rng)))


def play_follower(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """What most others said in the round before; at first, right or wrong by the toss of a coin."""
    at = env.roles.index(role)
    heard = [
        said.answer for position, said in enumerate(state.said) if position != at and said.answer
    ]
    if not heard:
        return (play_solver if rng.random() < 0.5 else play_wrong)(env, state, role, rng)
    return str(env.reply_of(Counter(heard).most_common(1)[0][0]))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_solver, play_wrong, 0.5),
    "wrong": play_wrong,
    "follower": play_follower,
    "solver": play_solver,
}
