"""Leduc poker: six cards, two rounds of betting, and a card on the board between them."""

from collections.abc import Sequence

from pettingllms.envs.games.leduc_poker import players
from pettingllms.envs.toolkit.poker import Betting, Poker

SIZES = (2, 4)
"""What a raise adds in each round."""
MAX_RAISES = 2


class LeducPoker(Poker):
    """One card each of six, a round of betting, a card for both, another round (Southey, 2005)."""

    id = "leduc_poker-v1"
    players = players.PLAYERS
    limit_reward = -13.0
    deck = ("J", "J", "Q", "Q", "K", "K")
    num_board = 1
    worth = -0.085606424078
    rules = (
        "Leduc poker. The deck is two jacks, two queens and two kings; each of two players holds "
        "one card, hidden from the other, and has put one chip in. There are two rounds of "
        "betting, and after the first one a card is laid on the board for both. player_1 speaks "
        "first in each. Without a raise you check or raise; against one you fold and lose what "
        "you put in, call, or raise again. A raise is 2 chips in the first round and 4 in the "
        "second, at most two raises a round. In the end a card that pairs with the board wins, "
        "then the higher one: king over queen over jack; equal cards share."
    )

    def follow(self, said: Sequence[str]) -> Betting:
        paid, mover, num_raises = [1, 1], 0, 0
        rounds: list[list[str]] = [[]]
        over = False
        for word in said:
            rounds[-1].append(word)
            if word == "fold":
                return self._ended(paid, rounds, mover)
            owed = max(paid) - paid[mover]
            paid[mover] += owed
            mover = 1 - mover
            if word == "raise":
                num_raises += 1
                paid[1 - mover] += SIZES[len(rounds) - 1]
            elif len(rounds[-1]) > 1:  # a check or a call ends a round, unless it opens it
                over = len(rounds) == len(SIZES)
                if not over:
                    rounds.append([])
                    mover, num_raises = 0, 0
        if over:
            return self._ended(paid, rounds, None)
        moves: tuple[str, ...] = ("fold", "call") if paid[0] != paid[1] else ("check",)
        moves += ("raise",) if num_raises < MAX_RAISES else ()
        return Betting(
            mover, (paid[0], paid[1]), moves, None, len(rounds) > 1, tuple(map(tuple, rounds))
        )

    def _ended(self, paid: list[int], rounds: list[list[str]], folded: int | None) -> Betting:
        words = tuple(map(tuple, rounds))
        return Betting(None, (paid[0], paid[1]), (), folded, len(rounds) > 1, words)
