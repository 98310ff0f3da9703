"""Prompts of Hanabi: the rules, then the table in words, from one player's view."""

from pettingllms.envs.games.hanabi.replies import hinted, move_text, name
from pettingllms.envs.games.hanabi.rules import (
    COLORS,
    Card,
    Event,
    Held,
    Table,
    Variant,
    legal_moves,
)
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, as_reply

COUNTS = {1: "one", 2: "two", 3: "three"}


def rules_text(variant: Variant, position: int) -> str:
    """The rules and the reply format, for one player."""
    others = [name(other) for other in range(variant.num_players) if other != position]
    ranks = range(1, variant.num_ranks + 1)
    copies = ", ".join(f"{COUNTS[variant.copies(rank)]} {rank}" for rank in ranks)
    return (
        f"You are {name(position)} in Hanabi, a cooperative card game with {', '.join(others)}. "
        "Together you build one firework for each color: "
        f"{', '.join(COLORS[: variant.num_colors])}. Each goes up from 1 to {variant.num_ranks} in "
        f"order; each card on it is a point. Cards of each color: {copies}. You see the hands of "
        "the others, never your own. Position 1 is the oldest card of a hand; a new card takes "
        "the last position.\nOn your turn do one thing:\n"
        "- play P: the card at position P goes on its firework if it is the next rank there; if "
        "not, it is discarded and the team loses a life.\n"
        "- discard P: gives back one information token. Not when you have all of them.\n"
        "- hint PLAYER COLOR or hint PLAYER RANK: costs one information token and shows that "
        "player which of their cards have it, at least one.\n"
        "A finished firework gives back a token. The game ends with 0 points when the last life "
        "is lost. After the deck is empty, everyone has one more turn. An answer that is not a "
        f"legal move loses a life and your turn.\n{HOW_TO_ANSWER} "
        f"Like {as_reply('play 1')} or {as_reply(f'hint {others[0]} 2')}."
    )


def table_text(variant: Variant, view: Table, position: int) -> str:
    """The table as the player sees it, and its legal moves."""
    fireworks = ", ".join(card_text(Card(color, top)) for color, top in enumerate(view.fireworks))
    lines = [
        f"Fireworks: {fireworks} ({view.score} of {variant.max_score} points)",
        f"Information tokens: {view.information} of {variant.max_information}.",
        f"Lives: {view.lives} of {variant.max_lives}.",
        f"Cards in the deck: {len(view.deck)}." + _turns_text(view),
        f"Discards: {_discards_text(view)}",
        "Your hand, as hints told you:",
        *(f"{at}: {known(variant, held)}" for at, held in enumerate(view.hands[position], 1)),
    ]
    for step in range(1, variant.num_players):
        other = (position + step) % variant.num_players
        lines.append(f"{name(other)} has (and was told):")
        for at, held in enumerate(view.hands[other], 1):
            lines.append(f"{at}: {card_text(held.card)} ({known(variant, held)})")
    events = [event_text(event, position) for event in view.events]
    lines += ["Last moves:", *(events or ["none"]), _question(variant, view, position)]
    return "\n".join(lines)


def terse_text(variant: Variant, view: Table, position: int) -> str:
    """The same table in symbols: letters for colors, hands as possible colors and ranks."""

    def card(color: int, rank: int) -> str:
        return f"{COLORS[color][0].upper()}{rank}"

    def possible(held: Held) -> str:
        colors = "".join(COLORS[color][0].upper() for color in held.colors)
        return colors + "".join(map(str, held.ranks))

    lines = [
        f"{position + 1}" + "".join(card(color, top) for color, top in enumerate(view.fireworks)),
        f"i{view.information} l{view.lives} d{len(view.deck)}"
        + ("" if view.deck else f" t{view.turns_left}"),
        "-" + "".join(card(c.color, c.rank) for c in sorted(view.discards)),
        " ".join(possible(held) for held in view.hands[position]),
    ]
    for step in range(1, variant.num_players):
        hand = view.hands[(position + step) % variant.num_players]
        lines.append(" ".join(f"{card(h.card.color, h.card.rank)}:{possible(h)}" for h in hand))
    said = [event.move for event in view.events[-(variant.num_players - 1) :]]
    lines += ["none" if move is None else move_text(move) for move in said]
    return "\n".join(lines)


def card_text(card: Card) -> str:
    """Color and rank in words."""
    return f"{COLORS[card.color]} {card.rank}"


def known(variant: Variant, held: Held) -> str:
    """Colors and ranks of a card that hints left possible."""
    colors = "/".join(COLORS[color] for color in held.colors)
    ranks = "/".join(map(str, held.ranks))
    if len(held.colors) == variant.num_colors > 1:
        colors = "any color"
    if len(held.ranks) == variant.num_ranks > 1:
        return f"{colors}, any rank"
    return f"{colors}, rank {ranks}"


def event_text(event: Event, position: int) -> str:
    """One move or illegal reply, as the player is shown it."""
    who = "you" if event.position == position else name(event.position)
    if event.move is None:
        reason = f" ({event.refusal})" if event.refusal else ""
        return f"- {who}: no legal move{reason}, a life lost"
    if event.move.kind in ("color", "rank"):
        target = "you" if event.move.target == position else name(event.move.target)
        cards = " ".join(str(at + 1) for at in event.touched)
        return f"- {who}: hint {target} {hinted(event.move)}, touching {cards}"
    assert event.card is not None  # noqa: S101 - plays and discards show their card
    ending = ""
    if event.move.kind == "play":
        ending = ", a point" if event.fits else ", does not fit, a life lost"
    return f"- {who}: {move_text(event.move)}, {card_text(event.card)}{ending}"


def moves_text(variant: Variant, view: Table) -> str:
    """The legal moves of the player to move, grouped by kind."""
    by_start: dict[str, list[str]] = {}
    for move in legal_moves(variant, view):
        start, _, end = move_text(move).rpartition(" ")
        by_start.setdefault(start, []).append(end)
    return "; ".join(f"{start} {'/'.join(ends)}" for start, ends in by_start.items())


def _turns_text(view: Table) -> str:
    return "" if view.deck else f" Turns left: {view.turns_left}."


def _discards_text(view: Table) -> str:
    by_color: dict[int, list[int]] = {}
    for card in sorted(view.discards):
        by_color.setdefault(card.color, []).append(card.rank)
    piles = [f"{COLORS[color]} {' '.join(map(str, ranks))}" for color, ranks in by_color.items()]
    return ", ".join(piles) or "none"


def _question(variant: Variant, view: Table, position: int) -> str:
    if view.over(variant):
        return f"The game is over with {view.score} of {variant.max_score} points."
    if view.mover != position:
        return f"It is the turn of {name(view.mover)}."
    return f"Your turn. Legal moves: {moves_text(variant, view)}"
