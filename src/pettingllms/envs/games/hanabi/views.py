"""What a seat may see of the table, and other tables that it could not tell from this one."""

import random
from dataclasses import replace

from pettingllms.envs.games.hanabi.rules import Card, Event, Held, Table, put

HIDDEN = Card(-1, 0)
"""Stands where a seat cannot see the card."""
NUM_SWEEPS = 32
"""Swaps tried for every card of a redealt hand."""


def hidden_from(table: Table, position: int) -> Table:
    """The table with everything hidden that the seat must not know: all it is ever shown."""
    hand = tuple(replace(held, card=HIDDEN) for held in table.hands[position])
    return replace(
        table,
        deck=(HIDDEN,) * len(table.deck),
        hands=put(table.hands, position, hand),
        events=_with_refusals_of_others(table, position, ""),
    )


def redealt(table: Table, position: int, rng: random.Random) -> Table:
    """Another table that the seat cannot tell from this one.

    The cards of the hand and the deck change places in random swaps that respect what hints have
    said about the hand, which comes close to a uniform draw and cannot get stuck.
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
    """Whether the card may stand there; places past the hand are the deck, where any may."""
    return at >= len(hand) or (card.color in hand[at].colors and card.rank in hand[at].ranks)


def _with_refusals_of_others(table: Table, position: int, reason: str) -> tuple[Event, ...]:
    return tuple(
        replace(event, refusal=reason) if event.refusal and event.position != position else event
        for event in table.events
    )
