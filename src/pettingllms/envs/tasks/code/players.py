"""Scripted players for code: known solutions, known mistakes, and tests derived from hidden
ones."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pettingllms.datasets.code_problems import Case
from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.code.prompts import TESTER, Work
from pettingllms.envs.toolkit.noisy import noisy

NOTHING = "def {name}(*args):\n    return 0"
ZERO = "print(0)"


def play_right(env: Any, state: Work, role: str, rng: random.Random) -> str:
    """A known solution, or tests that a correct program passes."""
    if role == TESTER:
        return _tests(env, state, state.problem.hidden)
    return str(env.reply_of(state.problem.good[0] if state.problem.good else _trivial(state)))


def play_wrong(env: Any, state: Work, role: str, rng: random.Random) -> str:
    """A known mistake, or tests with the expected values of other tests."""
    if role == TESTER:
        return _tests(env, state, _with_wrong_values(state.problem.hidden))
    return str(env.reply_of(state.problem.bad[0] if state.problem.bad else _trivial(state)))


def play_random(env: Any, state: Work, role: str, rng: random.Random) -> str:
    """A random solution, correct, incorrect or trivial; random tests."""
    if role == TESTER:
        cases = rng.sample(state.problem.hidden, min(2, len(state.problem.hidden)))
        return _tests(env, state, cases if rng.random() < 0.5 else _with_wrong_values(cases))
    known = (*state.problem.good, *state.problem.bad, _trivial(state))
    return str(env.reply_of(rng.choice(known)))


def _trivial(state: Work) -> str:
    return NOTHING.format(name=state.problem.function) if state.problem.function else ZERO


def _with_wrong_values(cases: Any) -> list[Case]:
    """Each input with another test's expected value, if there is one."""
    values = [*dict.fromkeys(case.expected for case in cases), '"?"']
    other = {value: values[(at + 1) % len(values)] for at, value in enumerate(values)}
    return [replace(case, expected=other[case.expected], also="") for case in cases]


def _tests(env: Any, state: Work, cases: Any) -> str:
    """As many of the cases as `max_tests` allows, as a reply."""
    shown = {case.given.strip() for case in state.problem.visible}
    new = [case for case in cases if case.given.strip() not in shown]
    calls = bool(state.problem.function)
    return str(
        env.reply_of("\n".join(case.describe(calls) for case in new[: env.config.max_tests]))
    )


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_right, play_wrong),
    "right": play_right,
    "wrong": play_wrong,
}
