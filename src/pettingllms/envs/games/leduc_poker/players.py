"""Scripted players of Leduc poker: random, sound, which plays its cards, and either by chance."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy

BLUFF = 0.2
"""How often `sound` raises with nothing."""


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(rng.choice(env.legal(state, role)))


def play_sound(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Raise what is good, call with what may be, fold the rest, and bluff now and then."""
    now, card = env.betting(state), state.cards[env.roles.index(role)]
    if now.shows_board:
        good, fair = card == state.cards[2], card == "K"
    else:
        good, fair = card == "K", card == "Q"
    if "raise" in now.moves and (good or rng.random() < BLUFF):
        return str(env.reply_of("raise"))
    if "check" in now.moves:
        return str(env.reply_of("check"))
    return str(env.reply_of("call" if good or fair else "fold"))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_sound, play_random),
    "sound": play_sound,
}
