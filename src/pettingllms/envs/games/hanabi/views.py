"""What a player may see of the table, and other tables with the same view."""

import random
from dataclasses import replace

from pettingllms.envs.games.hanabi.rules import Card, Event, Held, Table, put

HIDDEN = Card(-1, 0)
"""Placeholder for a card that the player cannot see."""
NUM_SWEEPS = 32
"""Swaps tried for every card of a resampled hand."""


def hidden_from(table: Table, position: int) -> Table:
    """The player's view: the table with hidden cards replaced by placeholders."""
    hand = tuple(replace(held, card=HIDDEN) for held in table.hands[position])
    return replace(
        table,
        deck=(HIDDEN,) * len(table.deck),
        hands=put(table.hands, position, hand),
        events=_with_refusals_of_others(table, position, ""),
    )


def redealt(table: Table, position: int, rng: random.Random) -> Table:
    """Resample the hidden cards: another table with the same view for the player.

    Random swaps between hand and deck respect all hints. The result is close to a uniform sample,
    and the procedure cannot get stuck.
    """
    hand = list(table.hands[position])
    pool = [held.card for held in hand] + rng.sample(table.deck, len(table.deck))
    for at in [*range(len(hand))] * NUM_SWEEPS:
        other = rng.randrange(len(pool))
        if _allows(hand, at, pool[other]) and _allows(hand, other, pool[at]):
            pool[at], pool[other] = pool[other], pool[at]
    dealt = tuple(replace(held, card=card) for held, card in zip(hand, pool, strict=False))
    return replace(
        table,
        deck=tuple(pool[len(hand) :]),
        hands=put(table.hands, position, dealt),
        events=_with_refusals_of_others(table, position, "something else"),
    )


def _allows(hand: list[Held], at: int, card: Card) -> bool:
    """Whether hints allow the card there; positions past the hand are the deck."""
    return at >= len(hand) or (card.color in hand[at].colors and card.rank in hand[at].ranks)


def _with_refusals_of_others(table: Table, position: int, reason: str) -> tuple[Event, ...]:
    return tuple(
        replace(event, refusal=reason) if event.refusal and event.position != position else event
        for event in table.events
    )
