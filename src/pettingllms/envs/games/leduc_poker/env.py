"""Leduc poker: six cards and two betting rounds with a board card between them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.noisy import noisy
from pettingllms.envs.toolkit.poker import Betting, Poker

SIZES = (2, 4)
"""Chips added by a raise in each round."""
MAX_RAISES = 2
BLUFF = 0.2
"""Probability that `sound` raises a weak hand."""


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(rng.choice(env.legal(state, role)))


def play_sound(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Raise strong hands, call with fair ones, fold the rest, and bluff sometimes."""
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


class LeducPoker(Poker):
    """One card per player, a betting round, a board card, another round (Southey, 2005)."""

    id = "leduc_poker-v1"
    players = PLAYERS
    limit_reward = -13.0
    deck = ("J", "J", "Q", "Q", "K", "K")
    num_board = 1
    game_value = -0.085606424078
    rules = (
        "Leduc poker. The deck is two jacks, two queens and two kings; each of two players holds "
        "one card, hidden from the other, and has put one chip in. There are two rounds of "
        "betting, and after the first one a card is laid on the board for both. player_1 speaks "
        "first in each. Without a raise you check or raise; against one you fold and lose what "
        "you put in, call, or raise again. A raise is 2 chips in the first round and 4 in the "
        "second, at most two raises a round. In the end a card that pairs with the board wins, "
        "then the higher one: king over queen over jack; equal cards share."
    )

    def follow(self, history: Sequence[str]) -> Betting:
        chips, mover, num_raises = [1, 1], 0, 0
        rounds: list[list[str]] = [[]]
        over = False
        for word in history:
            rounds[-1].append(word)
            if word == "fold":
                return self._ended(chips, rounds, mover)
            owed = max(chips) - chips[mover]
            chips[mover] += owed
            mover = 1 - mover
            if word == "raise":
                num_raises += 1
                chips[1 - mover] += SIZES[len(rounds) - 1]
            elif len(rounds[-1]) > 1:  # a check or call ends the round, unless it is its first word
                over = len(rounds) == len(SIZES)
                if not over:
                    rounds.append([])
                    mover, num_raises = 0, 0
        if over:
            return self._ended(chips, rounds, None)
        moves: tuple[str, ...] = ("fold", "call") if chips[0] != chips[1] else ("check",)
        moves += ("raise",) if num_raises < MAX_RAISES else ()
        return Betting(
            mover, (chips[0], chips[1]), moves, None, len(rounds) > 1, tuple(map(tuple, rounds))
        )

    def _ended(self, chips: list[int], rounds: list[list[str]], folded: int | None) -> Betting:
        words = tuple(map(tuple, rounds))
        return Betting(None, (chips[0], chips[1]), (), folded, len(rounds) > 1, words)
