"""Kuhn poker: three cards and one bet; optimal play already requires bluffing."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.poker import Betting, Poker

PASSES = ("check", "fold")
BLUFF = 1 / 3
"""Probability that the first player bets a jack; any value up to 1/3 is optimal."""


def bet_probability(card: str, history: tuple[str, ...]) -> float:
    """Probability that an equilibrium strategy bets or calls with a card (Kuhn, 1950)."""
    match history:
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
    """A Nash equilibrium strategy: not exploitable."""
    passes, chips = env.legal(state, role)
    card = state.cards[env.roles.index(role)]
    return str(chips if rng.random() < bet_probability(card, state.history) else passes)


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_nash, play_random),
    "nash": play_nash,
}


class KuhnPoker(Poker):
    """One card per player, one betting round, one bet of one chip (Kuhn, 1950)."""

    id = "kuhn_poker-v1"
    players = PLAYERS
    limit_reward = -2.0
    deck = ("J", "Q", "K")
    game_value = -1 / 18
    rules = (
        "Kuhn poker. The deck is one jack, one queen and one king; each of two players holds one "
        "card, hidden from the other, and has put one chip in. player_1 speaks first. Without a "
        "bet you check or bet one chip more. Against a bet you call it, or fold and lose what you "
        "put in. When both have checked or a bet is called, the higher card takes all: king over "
        "queen over jack."
    )

    def follow(self, history: Sequence[str]) -> Betting:
        chips = [1, 1]
        for at, word in enumerate(history):
            chips[at % 2] += word not in PASSES
        stakes, rounds = (chips[0], chips[1]), (tuple(history),)
        last = history[-1] if history else ""
        mover = len(history) % 2
        if last == "fold":
            return Betting(None, stakes, folded=1 - mover, rounds=rounds)
        if last == "call" or tuple(history) == ("check", "check"):
            return Betting(None, stakes, rounds=rounds)
        moves = ("fold", "call") if last == "bet" else ("check", "bet")
        return Betting(mover, stakes, moves, rounds=rounds)
