"""Grids of symbols with movement, and plans that are sequences of moves."""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import Field

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.plan_check import PlanCheck, PlanCheckConfig

MOVES = "UDLR"
OPPOSITE = dict(zip(MOVES, "DURL", strict=True))
WALL = "#"
MOVE_RULES = (
    "A plan is its moves in order, as letters: U up, D down, L left, R right. It looks like UDLR."
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of symbols. A cell is the index of its symbol in `text`.

    Rows are separated by line breaks. A step off the side therefore lands on a line break, and a
    step off the top or bottom on an invalid index: `where` returns neither.
    """

    text: str

    @property
    def steps(self) -> dict[str, int]:
        """The index offset of each move."""
        stride = self.text.index("\n") + 1
        return {"U": -stride, "D": stride, "L": -1, "R": 1}

    def where(self, symbols: str) -> frozenset[int]:
        """The cells that contain one of the symbols."""
        return frozenset(at for at, symbol in enumerate(self.text) if symbol in symbols)

    def floor(self) -> frozenset[int]:
        """The cells that are not walls."""
        return frozenset(range(len(self.text))) - self.where(WALL + "\n")

    def put(self, symbols: Mapping[int, str]) -> "Grid":
        """A copy of the grid with some symbols replaced."""
        return Grid("".join(symbols.get(at, symbol) for at, symbol in enumerate(self.text)))

    def painted(self, looks: Mapping[str, str]) -> str:
        """The grid in a frame, every symbol replaced by two columns of Rich markup."""
        rows = ["".join(looks[symbol] for symbol in row) for row in self.text.split("\n")]
        edge = "──" * self.text.index("\n")
        return "\n".join([f"┌{edge}┐", *(f"│{row}│" for row in rows), f"└{edge}┘"])


def distances(
    free: Collection[int], sources: Iterable[int], steps: Iterable[int]
) -> dict[int, int]:
    """Number of steps over free cells from each reachable cell to the nearest source.

    Cells are ordered by distance.
    """
    found = dict.fromkeys(sources, 0)
    queue = list(found)
    steps = tuple(steps)
    for cell in queue:
        for step in steps:
            if (ahead := cell + step) in free and ahead not in found:
                found[ahead] = found[cell] + 1
                queue.append(ahead)
    return found


def shortest_walk(
    free: Collection[int], start: int, goal: int, steps: Mapping[str, int]
) -> str | None:
    """The moves of a shortest path over free cells, or None if there is no path."""
    left = distances(free, [goal], steps.values())
    if start not in left:
        return None
    walk = ""
    while start != goal:
        move = next(move for move in MOVES if left.get(start + steps[move]) == left[start] - 1)
        start += steps[move]
        walk += move
    return walk


class GridConfig(PlanCheckConfig):
    """Options of puzzles on a grid."""

    width: int = Field(default=6, ge=2, le=32)
    """Number of columns."""
    height: int = Field(default=6, ge=2, le=32)
    """Number of rows."""
    max_moves: int = Field(default=64, ge=1)
    """Maximum number of moves per plan. Every level can be solved within it."""


GridConfigT = TypeVar("GridConfigT", bound=GridConfig)


class GridPlan(PlanCheck[Grid, GridConfigT]):
    """A puzzle on a grid whose plan is a string of moves."""

    plan_hint = "moves, such as RRDDL"
    next_round = "The next round continues where a plan stopped."

    def show(self, puzzle: Grid) -> str:
        return "\n".join(" ".join(row) for row in puzzle.text.split("\n"))

    def read(self, puzzle: Grid, answer: str) -> str:
        moves = "".join(answer.upper().replace(",", " ").split())
        if wrong := next((symbol for symbol in moves if symbol not in MOVES), None):
            raise BadReply(f"{wrong!r} is not a move; use the letters U, D, L and R alone")
        if not moves:
            raise BadReply("there is no move in the plan")
        if len(moves) > self.config.max_moves:
            raise BadReply(f"{len(moves)} moves, but a plan has at most {self.config.max_moves}")
        return moves


def without_last(env: Any, puzzle: Grid, plan: str) -> str:
    """A plan without its last move; a plan of one move is reversed."""
    return plan[:-1] or OPPOSITE[plan]


def random_moves(env: Any, puzzle: Grid, rng: random.Random) -> str:
    """A random plan, about as long as the grid is wide and high."""
    longest = min(env.config.max_moves, 2 * puzzle.steps["D"])
    return "".join(rng.choices(MOVES, k=rng.randint(1, longest)))
