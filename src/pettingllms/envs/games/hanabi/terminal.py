"""Terminal rendering of the table in Rich markup, from one player's view."""

from pettingllms.envs.games.hanabi.prompts import event_text
from pettingllms.envs.games.hanabi.replies import name
from pettingllms.envs.games.hanabi.rules import Card, Held, Table, Variant

STYLES = ("red", "yellow", "green", "white", "bright_blue")
LETTERS = "RYGWB"


def draw_table(variant: Variant, view: Table, position: int) -> str:
    """Fireworks, tokens, hands and the last moves."""
    fireworks = " ".join(_card(Card(color, rank)) for color, rank in enumerate(view.fireworks))
    discards = " ".join(_card(card) for card in sorted(view.discards)) or "[dim]none[/]"
    tokens = _dots(view.information, variant.max_information, "cyan")
    lives = _dots(view.lives, variant.max_lives, "red")
    lines = [
        f"fireworks  {fireworks}   [bold]{view.score}[/] of {variant.max_score} points",
        f"tokens     {tokens}   lives {lives}   deck {len(view.deck)}",
        f"discards   {discards}",
        "",
    ]
    for step in range(variant.num_players):
        other = (position + step) % variant.num_players
        lines.append(_hand(variant, view, other, own=other == position))
    lines += [f"[dim]{event_text(event, position)}[/]" for event in view.events]
    if view.over(variant):
        lines.append(f"[bold]over: {view.score} of {variant.max_score} points[/]")
    return "\n".join(lines)


def _hand(variant: Variant, view: Table, position: int, own: bool) -> str:
    """Two lines: the cards, and below each what its holder knows about it."""
    mark = "[bold]>[/]" if position == view.mover and not view.over(variant) else " "
    width = max(variant.num_colors + variant.num_ranks, len("1 R1")) + 2
    cards = "".join(
        f"[dim]{at}[/] {'[dim]??[/]' if own else _card(held.card)}{' ' * (width - 4)}"
        for at, held in enumerate(view.hands[position], 1)
    )
    padding = " " * (width - variant.num_colors - variant.num_ranks)
    below = padding.join(_known(variant, held) for held in view.hands[position])
    return f"{mark} {'you' if own else name(position):10}{cards}\n{'':12}{below}"


def _card(card: Card) -> str:
    return f"[bold {STYLES[card.color]}]{LETTERS[card.color]}{card.rank}[/]"


def _known(variant: Variant, held: Held) -> str:
    """The possible colors and ranks; a dot for each one ruled out."""
    colors = "".join(
        f"[{STYLES[color]}]{LETTERS[color]}[/]" if color in held.colors else "[dim]·[/]"
        for color in range(variant.num_colors)
    )
    ranks = "".join(
        str(rank) if rank in held.ranks else "[dim]·[/]" for rank in range(1, variant.num_ranks + 1)
    )
    return f"{colors}{ranks}"


def _dots(count: int, most: int, style: str) -> str:
    return f"[{style}]{'●' * count}[/][dim]{'○' * (most - count)}[/]"
