"""Scripted players for math: one that knows the answers, one that is always wrong, and a random
one."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.boxed_answers import in_box, other_answer
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.program_output import as_program


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random number, or a random choice."""
    choices = state.problem.choices
    return _reply(env, role, rng.choice(choices) if choices else str(rng.randint(0, 99)))


def play_solver(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The correct answer; as a program, the problem's formula if it has one."""
    formula = state.problem.short.removesuffix("=").replace("/", "//")
    if role == "tool" and formula and not state.problem.choices:
        return as_program(f"print({formula})", env.config.terse)
    return _reply(env, role, state.problem.answer)


def play_wrong(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A plausible but incorrect answer."""
    return _reply(env, role, other_answer(state.problem, rng))


def _reply(env: Any, role: str, answer: str) -> str:
    if role == "tool":
        return as_program(f"print({answer!r})", env.config.terse)
    return in_box(answer, env.config.terse)


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_solver, play_wrong, 0.3),
    "wrong": play_wrong,
    "solver": play_solver,
}
