"""Scripted players of the iterated dilemma: classic strategies from Axelrod (1984)."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy

ROLES = ("player_1", "player_2")
COOPERATE, DEFECT = "cooperate", "defect"
PROMISES = ("Let us both cooperate.", "I repeat what you do.", "I trust nobody.")
Strategy = Callable[[Sequence[str], random.Random], str]
"""A strategy: maps the opponent's past choices to a choice."""


def _by_strategy(strategy: Strategy, env: Any, state: Any, role: str, rng: random.Random) -> str:
    if env.talking(state):
        return str(env.reply_of(rng.choice(PROMISES)))
    rival = 1 - ROLES.index(role)
    return str(env.reply_of(strategy([both[rival] for both in state.chosen], rng)))


def _random(seen: Sequence[str], rng: random.Random) -> str:
    return rng.choice((COOPERATE, DEFECT))


def _tit_for_tat(seen: Sequence[str], rng: random.Random) -> str:
    return seen[-1] if seen else COOPERATE


def _cooperate(seen: Sequence[str], rng: random.Random) -> str:
    return COOPERATE


def _defect(seen: Sequence[str], rng: random.Random) -> str:
    return DEFECT


def _grim(seen: Sequence[str], rng: random.Random) -> str:
    return DEFECT if DEFECT in seen else COOPERATE


play_random: ScriptedPlayer = partial(_by_strategy, _random)
play_tit_for_tat: ScriptedPlayer = partial(_by_strategy, _tit_for_tat)
PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_tit_for_tat, play_random),
    "tit_for_tat": play_tit_for_tat,
    "cooperate": partial(_by_strategy, _cooperate),
    "defect": partial(_by_strategy, _defect),
    "grim": partial(_by_strategy, _grim),
}
