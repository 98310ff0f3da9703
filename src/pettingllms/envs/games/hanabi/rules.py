"""The rules of Hanabi: the table, the legal moves and the transitions.

Players, colors and positions in a hand count from 0, ranks from 1. The shuffled deck is part of the
state, so every transition is deterministic.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

ItemT = TypeVar("ItemT")
COLORS = ("red", "yellow", "green", "white", "blue")


class Card(NamedTuple):
    """A color, from 0, and a rank, from 1."""

    color: int
    rank: int


@dataclass(frozen=True)
class Variant:
    """The parameters of a game."""

    num_players: int
    num_colors: int
    num_ranks: int
    hand_size: int
    max_information: int
    max_lives: int

    def copies(self, rank: int) -> int:
        """How many cards of this rank each color has: three 1s, one highest, two between."""
        if rank == 1:
            return 3
        return 1 if rank == self.num_ranks else 2

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """The whole deck, in order."""
        kinds = [Card(c, r) for c in range(self.num_colors) for r in range(1, self.num_ranks + 1)]
        return tuple(card for card in kinds for _ in range(self.copies(card.rank)))

    @property
    def max_score(self) -> int:
        """The perfect score."""
        return self.num_colors * self.num_ranks


@dataclass(frozen=True, slots=True)
class Held:
    """A card in a hand, and the colors and ranks that the hints to its holder left possible."""

    card: Card
    colors: tuple[int, ...]
    ranks: tuple[int, ...]

    def after_hint(self, move: "Move") -> "Held":
        """The card after a hint to its holder, whether or not the hint touched it."""
        touched = move.touches(self.card)
        if move.kind == "color":
            return replace(self, colors=_narrowed(self.colors, move.value, touched))
        return replace(self, ranks=_narrowed(self.ranks, move.value, touched))


def _narrowed(possible: tuple[int, ...], value: int, touched: bool) -> tuple[int, ...]:
    return (value,) if touched else tuple(other for other in possible if other != value)


Hand = tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Play or discard the card at a position, or hint a color or rank to a player."""

    kind: Literal["play", "discard", "color", "rank"]
    value: int
    """The position, the color or the rank."""
    target: int = -1
    """The player who receives the hint."""

    def touches(self, card: Card) -> bool:
        """Whether this hint points at the card."""
        return self.value == (card.color if self.kind == "color" else card.rank)


@dataclass(frozen=True, slots=True)
class Event:
    """What a player did: a move and its result, or an illegal reply."""

    position: int
    move: Move | None
    card: Card | None = None
    fits: bool = False
    touched: tuple[int, ...] = ()
    refusal: str = ""
    """Why the reply was illegal. Shown only to its author: that a hint would touch no card is
    information for its target."""


@dataclass(frozen=True, slots=True)
class Table:
    """The full state. `views.hidden_from` gives what one player may see of it."""

    deck: tuple[Card, ...]
    """Cards not dealt yet, the next one first."""
    hands: tuple[Hand, ...]
    """One hand per player, the oldest card first."""
    fireworks: tuple[int, ...]
    """The highest rank played of each color, 0 for none."""
    information: int
    lives: int
    turns_left: int
    """Turns until the end, counted down once the deck is empty."""
    mover: int = 0
    discards: tuple[Card, ...] = ()
    events: tuple[Event, ...] = ()
    """The last event of every player, the newest last."""

    @property
    def score(self) -> int:
        """Cards on the fireworks; 0 once the last life is lost."""
        return sum(self.fireworks) if self.lives else 0

    def over(self, variant: Variant) -> bool:
        """Whether the game is over."""
        return not self.lives or not self.turns_left or self.score == variant.max_score


def deal(variant: Variant, rng: random.Random) -> Table:
    """A new game: a shuffled deck, full hands, player 0 to move."""
    deck = list(variant.cards)
    rng.shuffle(deck)
    return initial_table(variant, deck)


def deals(variant: Variant) -> Iterator[tuple[Card, ...]]:
    """Every distinct order of the deck; all are equally likely."""

    def orders(left: Counter[Card]) -> Iterator[tuple[Card, ...]]:
        if not left:
            yield ()
        for card in sorted(left):
            for rest in orders(left - Counter([card])):
                yield (card, *rest)

    return orders(Counter(variant.cards))


def num_deals(variant: Variant) -> int:
    """Number of distinct orders of the deck."""
    alike = [math.factorial(count) for count in Counter(variant.cards).values()]
    return math.factorial(len(variant.cards)) // math.prod(alike)


def initial_table(variant: Variant, deck: Sequence[Card]) -> Table:
    """The initial table for a deck."""
    size, num_dealt = variant.hand_size, variant.hand_size * variant.num_players
    hands = tuple(
        tuple(_fresh(variant, card) for card in deck[start : start + size])
        for start in range(0, num_dealt, size)
    )
    return Table(
        deck=tuple(deck[num_dealt:]),
        hands=hands,
        fireworks=(0,) * variant.num_colors,
        information=variant.max_information,
        lives=variant.max_lives,
        turns_left=variant.num_players,
    )


def _fresh(variant: Variant, card: Card) -> Held:
    return Held(card, tuple(range(variant.num_colors)), tuple(range(1, variant.num_ranks + 1)))


def legal_moves(variant: Variant, table: Table) -> list[Move]:
    """Legal moves of the player to move. They do not depend on cards it cannot see."""
    positions = range(len(table.hands[table.mover]))
    moves = [Move("play", at) for at in positions]
    if table.information < variant.max_information:
        moves += [Move("discard", at) for at in positions]
    if table.information:
        for step in range(1, variant.num_players):
            moves += _hints(table, (table.mover + step) % variant.num_players)
    return moves


def _hints(table: Table, target: int) -> list[Move]:
    cards = [held.card for held in table.hands[target]]
    colors = [Move("color", color, target) for color in sorted({card.color for card in cards})]
    return colors + [Move("rank", rank, target) for rank in sorted({card.rank for card in cards})]


def after_move(variant: Variant, table: Table, move: Move) -> Table:
    """The table after a legal move."""
    if move.kind in ("color", "rank"):
        return _after_hint(variant, table, move)
    hand = table.hands[table.mover]
    card = hand[move.value].card
    fits = move.kind == "play" and card.rank == table.fireworks[card.color] + 1
    kept = hand[: move.value] + hand[move.value + 1 :]
    event = Event(table.mover, move, card, fits)
    regains = move.kind == "discard" or (fits and card.rank == variant.num_ranks)
    after = replace(
        table,
        hands=put(table.hands, table.mover, kept),
        fireworks=put(table.fireworks, card.color, card.rank) if fits else table.fireworks,
        discards=table.discards if fits else (*table.discards, card),
        information=min(table.information + regains, variant.max_information),
        lives=table.lives - (move.kind == "play" and not fits),
    )
    return _next_turn(variant, after, event)


def after_illegal_reply(variant: Variant, table: Table, reason: str) -> Table:
    """The table after an illegal reply: a life is lost and the turn passes."""
    after = replace(table, lives=table.lives - 1)
    return _next_turn(variant, after, Event(table.mover, None, refusal=reason))


def _after_hint(variant: Variant, table: Table, move: Move) -> Table:
    hand = table.hands[move.target]
    touched = tuple(at for at, held in enumerate(hand) if move.touches(held.card))
    hinted = tuple(held.after_hint(move) for held in hand)
    after = replace(
        table,
        hands=put(table.hands, move.target, hinted),
        information=table.information - 1,
    )
    return _next_turn(variant, after, Event(table.mover, move, touched=touched))


def _next_turn(variant: Variant, table: Table, event: Event) -> Table:
    table = replace(
        table,
        mover=(table.mover + 1) % variant.num_players,
        turns_left=table.turns_left - (not table.deck),
        events=(*table.events, event)[-variant.num_players :],
    )
    hand = table.hands[event.position]
    if table.over(variant) or not table.deck or len(hand) == variant.hand_size:
        return table
    drawn = (*hand, _fresh(variant, table.deck[0]))
    return replace(table, deck=table.deck[1:], hands=put(table.hands, event.position, drawn))


def put(values: tuple[ItemT, ...], at: int, value: ItemT) -> tuple[ItemT, ...]:
    """The tuple with one value replaced."""
    return (*values[:at], value, *values[at + 1 :])
