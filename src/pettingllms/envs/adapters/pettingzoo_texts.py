"""Text observations and move names for PettingZoo's classic games.

The library's observations are arrays or images. Here each game has two functions of the library's
object: an agent's observation as text, and the name of an action. Texts contain nothing that the
library hides from the agent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one game."""

    title: str
    see: Callable[[Any, str], str]
    """Maps object and agent to the observation."""
    name: Callable[[Any, int], str]
    """Maps object and action of the agent to move to the action's name."""
    min_return: float = -1.0
    """The minimum return of an agent, per round if there are several."""
    max_return: Callable[[Any], float | None] = lambda _live: None
    """Maps the object to the maximum return, which defines success in cooperative games."""
    is_cooperative: bool = False
    """Whether all agents get the same reward."""
    fallback_answer: str | None = None
    """The legal move that replaces an illegal reply, if its cost depends on the stakes."""


def _see_tictactoe(live: Any, agent: str) -> str:
    cells = [" " if mark == 0 else ".XO"[mark] for mark in live.board.squares]
    cells = [str(at) if cell == " " else cell for at, cell in enumerate(cells)]
    rows = [" ".join(cells[row::3]) for row in range(3)]
    return "\n".join(
        [f"You are {'XO'[_position(live, agent)]}. Free cells show their number.", *rows]
    )


def _see_connect_four(live: Any, agent: str) -> str:
    rows = ["".join(".XO"[cell] for cell in live.board[row : row + 7]) for row in range(0, 42, 7)]
    mark = "XO"[_position(live, agent)]
    return "\n".join([f"You are {mark}. Four in a row win. Columns:", "0123456", *rows])


def _see_chess(live: Any, agent: str) -> str:
    color = ("White (capitals)", "Black (small letters)")[_position(live, agent)]
    return f"You are {color}. The position, in FEN {live.board.fen()}:\n{live.board}"


def _name_chess(live: Any, action: int) -> str:
    read = import_module("pettingzoo.classic.chess.chess_utils").action_to_move
    return str(read(live.board, action, _position(live, live.agent_selection)).uci())


def _see_go(live: Any, agent: str) -> str:
    size, columns = live._N, "ABCDEFGHJKLMNOPQRST"  # noqa: SLF001 - no public name
    marks = {0: ".", 1: "X", -1: "O"}
    rows = [
        f"{size - at:2} " + " ".join(marks[int(cell)] for cell in row)
        for at, row in enumerate(live._go.board)  # noqa: SLF001
    ]
    mark = "XO"[_position(live, agent)]
    return "\n".join([f"You are {mark}; X is Black.", *rows, "   " + " ".join(columns[:size])])


def _name_go(live: Any, action: int) -> str:
    coords = import_module("pettingzoo.classic.go.coords")
    return str(coords.to_gtp(coords.from_flat(action)))


def _see_rps(live: Any, agent: str) -> str:
    """Past rounds, without the opponent's choice in the current round."""
    pairs = list(zip(live.history[0::2], live.history[1::2], strict=True))
    position, names = _position(live, agent), live._moves  # noqa: SLF001
    rounds = [
        f"you {names[p[position]]}, the other {names[p[1 - position]]}" for p in pairs if p[0] >= 0
    ]
    played = f"Round {live.num_moves + 1} of {live.max_cycles}. Both choose without seeing."
    return "\n".join([played, *(f"before: {text}" for text in rounds)])


def _name_rps(live: Any, action: int) -> str:
    return str(live._moves[action])  # noqa: SLF001


def _see_cards(live: Any, agent: str) -> str:
    seen = live.env.get_state(_position(live, agent))["raw_obs"]
    hand = seen["hand"] if isinstance(seen["hand"], str) else " ".join(seen["hand"])
    public = seen.get("public_cards", seen.get("public_card"))
    public = public if isinstance(public, str) else " ".join(public or [])
    chips = ", ".join(
        f"{name} {int(count)}"
        for name, count in zip(live.possible_agents, seen["all_chips"], strict=True)
    )
    lines = [f"Your hand: {hand}", f"Public cards: {public or 'none yet'}", f"Bets: {chips}"]
    if "stakes" in seen:
        left = zip(live.possible_agents, seen["stakes"], strict=True)
        lines.append("Stacks: " + ", ".join(f"{name} {int(count)}" for name, count in left))
    return "\n".join(lines)


def _name_cards(live: Any, action: int) -> str:
    names = live.env.actions
    named = names[action] if isinstance(names, list) else names(action).name.lower()
    return str(named).replace("_", " ")


def _see_hanabi(live: Any, agent: str) -> str:
    state = live.hanabi_env.game_state
    return str(state.observation_string(_position(live, agent)))


def _name_hanabi(live: Any, action: int) -> str:
    return str(live.hanabi_env.game_state.action_to_string(action)).strip("()")


def _best_hanabi(live: Any) -> float:
    """One point per card of every firework."""
    config = live.hanabi_env.config
    return float(config["colors"] * config["ranks"])


def _number(live: Any, action: int) -> str:
    return str(action)


def _position(live: Any, agent: str) -> int:
    return int(live.possible_agents.index(agent))


TEXTS = {
    "chess": Texts("chess", _see_chess, _name_chess),
    "connect_four": Texts("connect four", _see_connect_four, _number),
    "go": Texts("Go", _see_go, _name_go),
    "hanabi": Texts(
        "Hanabi",
        _see_hanabi,
        _name_hanabi,
        min_return=0.0,
        max_return=_best_hanabi,
        is_cooperative=True,
    ),
    "leduc_holdem": Texts("Leduc hold'em", _see_cards, _name_cards, fallback_answer="fold"),
    "rps": Texts("rock, paper, scissors", _see_rps, _name_rps),
    "texas_holdem": Texts("limit Texas hold'em", _see_cards, _name_cards, fallback_answer="fold"),
    "texas_holdem_no_limit": Texts(
        "no-limit Texas hold'em", _see_cards, _name_cards, fallback_answer="fold"
    ),
    "tictactoe": Texts("tic-tac-toe", _see_tictactoe, _number),
}
