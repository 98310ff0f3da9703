"""Scripted players of Hanabi: random, and cautious, which plays only cards that surely fit.

The cautious player reads the table through `hidden_from`, so it knows no more than its role. It
uses no conventions: a hint carries only its literal meaning.
"""

import random
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.games.hanabi.replies import move_text
from pettingllms.envs.games.hanabi.rules import Card, Held, Move, Table, Variant, legal_moves
from pettingllms.envs.games.hanabi.views import hidden_from
from pettingllms.envs.toolkit.noisy import noisy


def play_random(env: Any, state: Table, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(env.reply_of(move_text(rng.choice(legal_moves(env.variant, state)))))


def play_cautious(env: Any, state: Table, role: str, rng: random.Random) -> str:
    """Play a card that surely fits, else hint one that fits, else discard the least useful."""
    position = env.roles.index(role)
    seen = _PlayerView(env.variant, hidden_from(state, position), position)
    return str(env.reply_of(move_text(_cautious_move(seen, rng))))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_cautious, play_random),
    "cautious": play_cautious,
}


class _PlayerView:
    """One player's view of the table, and what it implies about cards."""

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
        """How many copies of each card the holder may have, from this player's view.

        The holder also sees this player's hand, which this player cannot.
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
        """Cards that the holder considers possible, by hints and by the cards it sees."""
        cards = self.left[holder]
        return [card for card in cards if card.color in held.colors and card.rank in held.ranks]

    def fits(self, card: Card) -> bool:
        """Whether the card can be played now."""
        return card.rank == self.view.fireworks[card.color] + 1

    def useless(self, card: Card) -> bool:
        """Whether the card can never be played."""
        return not self.view.fireworks[card.color] < card.rank <= self._tops[card.color]


def _cautious_move(seen: _PlayerView, rng: random.Random) -> Move:
    legal = legal_moves(seen.variant, seen.view)
    own = [seen.possible(held, seen.position) for held in seen.view.hands[seen.position]]
    for at, cards in enumerate(own):
        if all(map(seen.fits, cards)):
            return Move("play", at)
    hints = {move: _hint_value(seen, move) for move in legal if move.target >= 0}
    best = max(hints.values(), default=(0, 0, 0))
    best_hints = [move for move, value in hints.items() if value == best]
    num_now_sure, num_nearer, _ = best
    if num_now_sure:
        return rng.choice(best_hints)
    may_discard = Move("discard", 0) in legal
    for at, cards in enumerate(own):
        if may_discard and all(map(seen.useless, cards)):
            return Move("discard", at)
    if hints and (num_nearer or not may_discard):
        return rng.choice(best_hints)
    return Move("discard", _least_hinted(seen))


def _hint_value(seen: _PlayerView, hint: Move) -> tuple[int, int, int]:
    """Counts: cards now surely playable, other cards that fit, and possibilities ruled out."""
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


def _least_hinted(seen: _PlayerView) -> int:
    """The oldest card with unknown color and rank; otherwise the oldest card."""
    hand = seen.view.hands[seen.position]
    unknown = (at for at, held in enumerate(hand) if len(held.colors) > 1 and len(held.ranks) > 1)
    return next(unknown, 0)
