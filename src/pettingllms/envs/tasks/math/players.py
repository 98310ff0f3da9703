"""Scripted players for math: one that knows the answers, one that is always wrong, and a random
one."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.boxed_answers import in_box, other_answer
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random number, or a random choice."""
    choices = state.problem.choices
    return _reply(env, role, rng.choice(choices) if choices else str(rng.randint(0, 99)))


def play_solver(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The correct answer; as a program, the problem's formula if it has one."""
    formula = state.problem.short.removesuffix("=").replace("/", "//")
    if role == "tool" and formula and not state.problem.choices:
        return _program(env, f"print({formula})")
    return _reply(env, role, state.problem.answer)


def play_wrong(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A plausible but incorrect answer."""
    return _reply(env, role, other_answer(state.problem, rng))


def _reply(env: Any, role: str, answer: str) -> str:
    if role == "tool":
        return _program(env, f"print({answer!r})")
    return in_box(answer, env.config.terse)


def _program(env: Any, source: str) -> str:
    return source if env.config.terse else f"```python\n{source}\n```"


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_solver, play_wrong, 0.3),
    "wrong": play_wrong,
    "solver": play_solver,
}
