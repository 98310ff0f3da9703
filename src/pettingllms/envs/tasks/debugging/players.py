"""Scripted players: one that plants real bugs and repairs them, one that does neither, a random
one."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.debugging.planting import mutants
from pettingllms.envs.toolkit.noisy import noisy


def play_right(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A mutation that tests detect, preferably only hidden ones; the original program."""
    if role == "mender":
        return str(env.reply_of(state.original))
    found = [(env.test_outcome(state.problem, text), text) for text in mutants(state.original)]
    subtle = [text for outcome, text in found if outcome.is_bug and outcome.is_subtle]
    plain = [text for outcome, text in found if outcome.is_bug]
    return str(env.reply_of((subtle or plain or [state.original])[0]))


def play_wrong(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Leaves the program unchanged."""
    return str(env.reply_of(state.original if role == "planter" else state.planted))


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """A random mutation; a random known program."""
    if role == "planter":
        return str(env.reply_of(rng.choice([state.original, *mutants(state.original)])))
    return str(env.reply_of(rng.choice([state.original, state.planted, *state.problem.bad])))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_right, play_wrong),
    "right": play_right,
    "wrong": play_wrong,
}
