"""Sudoku: a planner and a checker fill a grid that has exactly one solution."""

import random
from functools import lru_cache
from math import isqrt
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pettingllms.envs.puzzles.sudoku import levels
from pettingllms.envs.puzzles.sudoku.levels import BLANK
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.drawing import INK, Board
from pettingllms.envs.toolkit.plan_check import Acted, PlanCheck, PlanCheckConfig, Script
from pettingllms.types import Image

DEFAULT_BLANKS = {4: 6, 9: 30}
ROW_BREAK = "/"
STEP, SOLVED, AT_ONCE, PROGRESS = -0.01, 2.0, 0.5, 0.5
"""Rewards of AT-GRPO's Sudoku: of a grid, of the solution, of giving it as the first grid, and of
the share of blanks that hold the right digit."""
LEGEND = "In the picture an empty cell is a blank, and thick lines are around the boxes."


class SudokuConfig(PlanCheckConfig):
    """Options of Sudoku."""

    size: Literal[4, 9] = 4
    """Rows, columns and digits of a grid."""
    num_blanks: int | None = Field(default=None, ge=1)
    """Cells to fill; by default 6 for size 4 and 30 for size 9. A puzzle has fewer if more blanks
    would allow several solutions."""

    @model_validator(mode="after")
    def _check_blanks(self) -> Self:
        if self.num_blanks is not None and self.num_blanks > self.size**2:
            raise ValueError(
                f"num_blanks is {self.num_blanks}, but a grid of size {self.size} has "
                f"{self.size**2} cells; set fewer"
            )
        return self


def _solve(env: Any, puzzle: str) -> str:
    return levels.solution_of(puzzle)


def _guess(env: Any, puzzle: str, rng: random.Random) -> str:
    digits = env.digits
    return "".join(rng.choice(digits) if cell == BLANK else cell for cell in puzzle)


def _spoil(env: Any, puzzle: str, solution: str) -> str:
    """The solution with a wrong digit in the last blank."""
    last = puzzle.rindex(BLANK)
    other: str = env.digits[int(solution[last]) % len(env.digits)]
    return solution[:last] + other + solution[last + 1 :]


def _fill_rows(env: Any, puzzle: str, rng: random.Random) -> str:
    """Each row gets the digits that it misses, in random order; columns and boxes are ignored."""
    size = env.config.size
    return "".join(
        _filled(puzzle[at : at + size], env.digits, rng) for at in range(0, size**2, size)
    )


def _filled(row: str, digits: str, rng: random.Random) -> str:
    missing = [digit for digit in digits if digit not in row]
    rng.shuffle(missing)
    return "".join(missing.pop() if cell == BLANK else cell for cell in row)


PLAYERS = {
    **Script(_solve, _guess, _spoil).players("backtracking"),
    "blind": Script(_solve, _fill_rows, _spoil).play_blind,
}


class Sudoku(PlanCheck[str, SudokuConfig]):
    """The plan is the whole grid. The solution is unique, so each cell is right or wrong."""

    id = "sudoku-v1"
    Config = SudokuConfig
    players = PLAYERS
    plan_hint = "every digit of the grid, row after row"

    @property
    def digits(self) -> str:
        """The digits that a cell may hold."""
        return "123456789"[: self.config.size]

    def rules(self) -> str:
        size, side = self.config.size, isqrt(self.config.size)
        blank, legend = {
            "text": ("every blank (.)", ""),
            "image": ("every blank", f" {LEGEND}"),
            "both": ("every blank (.)", f" {LEGEND}"),
        }[self.config.observation]
        return (
            f"The puzzle is a {size}x{size} Sudoku: fill {blank} so that each row, each "
            f"column and each {side}x{side} box holds the digits 1 to {size} once. The given "
            "digits stay. A plan is the whole filled grid: its rows from top to bottom, "
            f"{size} digits each, with {ROW_BREAK} between rows.{legend}"
        )

    def make(self, seed: int) -> str:
        size = self.config.size
        return levels.make_puzzle(seed, size, self.config.num_blanks or DEFAULT_BLANKS[size])

    def show(self, puzzle: str) -> str:
        return "\n".join(" ".join(row) for row in self._rows(puzzle))

    def read(self, puzzle: str, answer: str) -> str:
        cells = "".join(answer.replace(ROW_BREAK, " ").split())
        if wrong := next((symbol for symbol in cells if symbol not in self.digits), None):
            raise BadReply(f"{wrong!r} is not a digit from 1 to {self.config.size}")
        if len(cells) != len(puzzle):
            raise BadReply(f"{len(cells)} digits, but the grid has {len(puzzle)} cells")
        for at, (given, cell) in enumerate(zip(puzzle, cells, strict=True)):
            if given not in (BLANK, cell):
                row, column = at // self.config.size + 1, at % self.config.size + 1
                raise BadReply(f"row {row}, column {column} is given as {given}, not {cell}")
        return ROW_BREAK.join(self._rows(cells))

    def picture(self, puzzle: str) -> Image:
        return draw_grid(puzzle, self.config.cell_pixels)

    def score(self, puzzle: str, plan: str) -> float:
        share = self._right_share(puzzle, plan)
        return 1.0 if share == 1.0 else 0.9 * share

    def act(self, puzzle: str, plan: str | None, answer: str) -> Acted:
        share = self._right_share(puzzle, answer)
        if share == 1.0:
            return Acted(answer, STEP + SOLVED + AT_ONCE * (plan is None))
        before = 0.0 if plan is None else self._right_share(puzzle, plan)
        return Acted(answer, STEP + PROGRESS * (share - before))

    def _right_share(self, puzzle: str, plan: str) -> float:
        """The share of the blanks that hold the right digit."""
        solution, cells = levels.solution_of(puzzle), plan.replace(ROW_BREAK, "")
        blanks = [at for at, cell in enumerate(puzzle) if cell == BLANK]
        return sum(cells[at] == solution[at] for at in blanks) / len(blanks)

    def paint(self, puzzle: str, plan: str | None) -> str:
        filled = plan.replace(ROW_BREAK, "") if plan else puzzle
        looks = [
            f"[bold]{cell}[/]" if given == cell else f"[cyan]{cell}[/]"
            for given, cell in zip(puzzle.replace(BLANK, " "), filled, strict=True)
        ]
        size, side = self.config.size, isqrt(self.config.size)
        bar = "─" * (2 * side + 1)
        lines = []
        for row in range(size):
            if row and row % side == 0:
                lines.append(f"├{'┼'.join([bar] * side)}┤")
            cells = looks[row * size : (row + 1) * size]
            boxes = [" ".join(cells[at : at + side]) for at in range(0, size, side)]
            lines.append(f"│ {' │ '.join(boxes)} │")
        return "\n".join([f"┌{'┬'.join([bar] * side)}┐", *lines, f"└{'┴'.join([bar] * side)}┘"])

    def _rows(self, cells: str) -> list[str]:
        size = self.config.size
        return [cells[at : at + size] for at in range(0, size**2, size)]


@lru_cache(maxsize=1024)
def draw_grid(cells: str, cell: int) -> Image:
    """The grid as an image."""
    size = isqrt(len(cells))
    board = Board(size, size, cell)
    board.lines()
    board.lines(every=isqrt(size), width=0.1, color=INK)
    for at, digit in enumerate(cells):
        if digit != BLANK:
            board.letter((at % size, at // size), digit, INK, 0.7)
    return board.image()
