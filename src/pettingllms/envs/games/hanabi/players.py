"""Scripted players of Hanabi: random, and cautious, which plays only what it knows to fit.

The cautious player reads the table through `hidden_from`, so it cannot know more than its seat. It
follows no convention: a hint means what it says and no more, whoever gave it.
"""

import random
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.games.hanabi.replies import notify
from pettingllms.envs.games.hanabi.rules import Card, Held, Move, Table, Variant, legal_moves
from pettingllms.envs.games.hanabi.views import hidden_from
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Table, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(env.reply_of(notify(rng.choice(legal_moves(env.variant, state)))))


def play_cautious(env: Any, state: Table, role: str, rng: random.Random) -> str:
    """Play what surely fits, else hint what would fit, else discard what is worth least."""
    position = env.roles.index(role)
    seen = _Seen(env.variant, hidden_from(state, position), position)
    return str(env.reply_of(notify(_cautious_move(seen, rng))))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_cautious, play_random),
    "cautious": play_cautious,
}


class _Seen:
    """One seat's view of the table, and what follows from it about cards."""

    def __init__(self, variant: Variant, view: Table, position: int) -> None:
        self.variant = variant
        self.view = view
        self.position = position
        played = [
            Card(color, rank)
            for color, height in enumerate(view.fireworks)
            for rank in range(1, height + 1)
        ]
        self.left = [self._left([*played, *view.discards], to) for to in range(len(view.hands))]

    def _left(self, public: list[Card], holder: int) -> Counter[Card]:
        """How many copies of each card the holder may have, as far as this seat can tell.

        The holder sees every other hand. This seat cannot follow it as to its own hand alone.
        """
        hands = [
            hand for at, hand in enumerate(self.view.hands) if at not in (self.position, holder)
        ]
        return self._deck - Counter([*public, *(held.card for hand in hands for held in hand)])

    @cached_property
    def _deck(self) -> Counter[Card]:
        return Counter(self.variant.cards)

    @cached_property
    def _tops(self) -> list[int]:
        """The highest rank that each firework can still reach."""
        tops, gone = [], Counter(self.view.discards)
        for color, height in enumerate(self.view.fireworks):
            top = height
            while gone[Card(color, top + 1)] < self._deck[Card(color, top + 1)]:
                top += 1
            tops.append(top)
        return tops

    def possible(self, held: Held, holder: int) -> list[Card]:
        """What the holder may take the card for, by its hints and by the cards it sees."""
        cards = self.left[holder]
        return [card for card in cards if card.color in held.colors and card.rank in held.ranks]

    def fits(self, card: Card) -> bool:
        """Whether the card can be played now."""
        return card.rank == self.view.fireworks[card.color] + 1

    def useless(self, card: Card) -> bool:
        """Whether the card can never be played any more."""
        return not self.view.fireworks[card.color] < card.rank <= self._tops[card.color]


def _cautious_move(seen: _Seen, rng: random.Random) -> Move:
    legal = legal_moves(seen.variant, seen.view)
    own = [seen.possible(held, seen.position) for held in seen.view.hands[seen.position]]
    for at, cards in enumerate(own):
        if all(map(seen.fits, cards)):
            return Move("play", at)
    hints = {move: _worth(seen, move) for move in legal if move.target >= 0}
    best = max(hints.values(), default=(0, 0, 0))
    best_hints = [move for move, worth in hints.items() if worth == best]
    num_now_sure, num_nearer, _ = best
    if num_now_sure:
        return rng.choice(best_hints)
    may_discard = Move("discard", 0) in legal
    for at, cards in enumerate(own):
        if may_discard and all(map(seen.useless, cards)):
            return Move("discard", at)
    if hints and (num_nearer or not may_discard):
        return rng.choice(best_hints)
    return Move("discard", _least_told(seen))


def _worth(seen: _Seen, hint: Move) -> tuple[int, int, int]:
    """Cards that the target can now surely play, other cards that fit, and guesses ruled out."""
    num_now_sure = num_nearer = num_ruled_out = 0
    for held in seen.view.hands[hint.target]:
        before = seen.possible(held, hint.target)
        touched = hint.touches(held.card)
        after = [card for card in before if hint.touches(card) == touched]
        num_ruled_out += len(before) - len(after)
        if len(after) < len(before) and seen.fits(held.card):
            sure = all(map(seen.fits, after))
            num_now_sure += sure
            num_nearer += touched and not sure
    return num_now_sure, num_nearer, num_ruled_out


def _least_told(seen: _Seen) -> int:
    """The oldest card of which neither color nor rank is known; if there is none, the oldest."""
    hand = seen.view.hands[seen.position]
    untold = (at for at, held in enumerate(hand) if len(held.colors) > 1 and len(held.ranks) > 1)
    return next(untold, 0)
