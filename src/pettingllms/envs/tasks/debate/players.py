"""Scripted debaters: correct, wrong, random, and following the majority."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.boxed_answers import other_answer
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random number, or a random choice."""
    choices = state.problem.choices
    return str(env.reply_of(rng.choice(choices) if choices else str(rng.randint(0, 99))))


def play_solver(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The correct answer."""
    return str(env.reply_of(state.problem.answer))


def play_wrong(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A plausible but incorrect answer."""
    return str(env.reply_of(other_answer(state.problem, rng)))


def play_follower(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The majority answer of the others in the previous round; at first, correct or wrong with
    equal probability."""
    at = env.roles.index(role)
    others = [one.answer for index, one in enumerate(state.positions) if index != at and one.answer]
    if not others:
        return (play_solver if rng.random() < 0.5 else play_wrong)(env, state, role, rng)
    return str(env.reply_of(Counter(others).most_common(1)[0][0]))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_solver, play_wrong, 0.5),
    "wrong": play_wrong,
    "follower": play_follower,
    "solver": play_solver,
}
