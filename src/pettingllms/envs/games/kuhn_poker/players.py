"""Scripted players of Kuhn poker: random, one that cannot be exploited, and either by chance."""

import random
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy

BLUFF = 1 / 3
"""How often the first seat bets a jack: any number up to a third is perfect play."""


def chance_of_chips(card: str, said: tuple[str, ...]) -> float:
    """How often perfect play bets, or calls, with a card after these words (Kuhn, 1950)."""
    match said:
        case ():
            return {"J": BLUFF, "Q": 0.0, "K": 3 * BLUFF}[card]
        case ("check",):
            return {"J": 1 / 3, "Q": 0.0, "K": 1.0}[card]
        case ("bet",):
            return {"J": 0.0, "Q": 1 / 3, "K": 1.0}[card]
        case _:
            return {"J": 0.0, "Q": BLUFF + 1 / 3, "K": 1.0}[card]


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(rng.choice(env.legal(state, role)))


def play_nash(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Perfect play: nobody wins more than the game's value against it."""
    passes, chips = env.legal(state, role)
    card = state.cards[env.roles.index(role)]
    return str(chips if rng.random() < chance_of_chips(card, state.said) else passes)


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_nash, play_random),
    "nash": play_nash,
}
