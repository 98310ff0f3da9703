"""Kuhn poker: three cards, one bet, and already bluffs that a perfect player must make."""

from collections.abc import Sequence

from pettingllms.envs.games.kuhn_poker import players
from pettingllms.envs.toolkit.poker import Betting, Poker

PASSES = ("check", "fold")


class KuhnPoker(Poker):
    """One card each of three, one round, one bet of one chip (Kuhn, 1950)."""

    id = "kuhn_poker-v1"
    players = players.PLAYERS
    limit_reward = -2.0
    deck = ("J", "Q", "K")
    worth = -1 / 18
    rules = (
        "Kuhn poker. The deck is one jack, one queen and one king; each of two players holds one "
        "card, hidden from the other, and has put one chip in. player_1 speaks first. Without a "
        "bet you check or bet one chip more. Against a bet you call it, or fold and lose what you "
        "put in. When both have checked or a bet is called, the higher card takes all: king over "
        "queen over jack."
    )

    def follow(self, said: Sequence[str]) -> Betting:
        paid = [1, 1]
        for at, word in enumerate(said):
            paid[at % 2] += word not in PASSES
        stakes, rounds = (paid[0], paid[1]), (tuple(said),)
        last = said[-1] if said else ""
        mover = len(said) % 2
        if last == "fold":
            return Betting(None, stakes, folded=1 - mover, rounds=rounds)
        if last == "call" or tuple(said) == ("check", "check"):
            return Betting(None, stakes, rounds=rounds)
        moves = ("fold", "call") if last == "bet" else ("check", "bet")
        return Betting(mover, stakes, moves, rounds=rounds)
