"""Format and parse moves. Error texts enter prompts, so they never quote the reply."""

from pettingllms.envs.games.hanabi.rules import COLORS, Move, Table, Variant
from pettingllms.envs.toolkit.answers import BadReply, answer_in

POSITIONS = {str(at + 1): at for at in range(9)}
RANKS = {str(rank): rank for rank in range(1, 10)}


def name(position: int) -> str:
    """The role at this position."""
    return f"player_{position + 1}"


def move_text(move: Move) -> str:
    """The move as a role writes it."""
    if move.kind in ("play", "discard"):
        return f"{move.kind} {move.value + 1}"
    return f"hint {name(move.target)} {hinted(move)}"


def hinted(move: Move) -> str:
    """The color or rank that a hint names."""
    return COLORS[move.value] if move.kind == "color" else str(move.value)


def read_move(variant: Variant, table: Table, reply: str, terse: bool = False) -> Move:
    """Parse a legal move; raise BadReply with the reason if there is none."""
    verb, *rest = answer_in(reply, terse).lower().split()
    if verb in ("play", "discard"):
        at = _position(verb, rest, len(table.hands[table.mover]))
        if verb == "play":
            return Move("play", at)
        if table.information == variant.max_information:
            raise BadReply(f"all {variant.max_information} information tokens are there already")
        return Move("discard", at)
    if verb == "hint":
        return _hint(variant, table, rest)
    raise BadReply("the answer does not start with play, discard or hint")


def _position(verb: str, rest: list[str], num_cards: int) -> int:
    if len(rest) != 1:
        raise BadReply(f"after {verb} comes one position and nothing else, like {verb} 1")
    at = POSITIONS.get(rest[0])
    if at is None or at >= num_cards:
        raise BadReply(f"the position is not a number from 1 to {num_cards}")
    return at


def _hint(variant: Variant, table: Table, rest: list[str]) -> Move:
    if len(rest) != 2:
        raise BadReply("after hint come one player and one color or rank, like hint player_2 red")
    positions = {name(position): position for position in range(variant.num_players)}
    target = positions.get(rest[0])
    if target is None:
        raise BadReply(f"nobody at the table has that name; the players are {', '.join(positions)}")
    if target == table.mover:
        raise BadReply("a hint cannot go to yourself")
    move = _hint_of(variant, rest[1], target)
    if not table.information:
        raise BadReply("no information token is left for a hint")
    if not any(move.touches(held.card) for held in table.hands[target]):
        raise BadReply(f"{name(target)} holds no card that {hinted(move)} would touch")
    return move


def _hint_of(variant: Variant, word: str, target: int) -> Move:
    colors = COLORS[: variant.num_colors]
    if word in colors:
        return Move("color", colors.index(word), target)
    rank = RANKS.get(word)
    if rank is None or rank > variant.num_ranks:
        raise BadReply(
            f"a hint names a color ({', '.join(colors)}) or a rank from 1 to {variant.num_ranks}"
        )
    return Move("rank", rank, target)
