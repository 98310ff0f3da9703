"""Sokoban: a planner and a checker push every box onto a goal."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.envs.base import Split
from pettingllms.envs.puzzles.sokoban import levels, players, rules
from pettingllms.envs.toolkit.drawing import (
    AMBER,
    BLUE,
    GREEN,
    INK,
    RED,
    WALL,
    Board,
    by_observation,
    draw_rows,
)
from pettingllms.envs.toolkit.grid import MOVE_RULES, Grid, GridConfig, GridPlan
from pettingllms.envs.toolkit.plan_check import Acted
from pettingllms.errors import MissingDataError
from pettingllms.types import Image, Task

LOOKS = {
    "#": "██",
    "-": "  ",
    ".": "[magenta]◇ [/]",
    "$": "[yellow]▣ [/]",
    "*": "[green]▣ [/]",
    "@": "[bold cyan]@ [/]",
    "+": "[bold magenta]@ [/]",
}
LEGEND = (
    "In the picture dark cells are walls, the blue disc is you, a crossed amber crate is a box, a "
    "red diamond is a goal, a crossed green crate is a box on a goal, and a red diamond behind the "
    "disc is a goal that you stand on."
)


class SokobanConfig(GridConfig):
    """Options of Sokoban."""

    width: int = Field(default=6, ge=5, le=32)
    """Columns of a level, including its outer walls."""
    height: int = Field(default=6, ge=5, le=32)
    """Rows of a level, including its outer walls."""
    max_moves: int = Field(default=200, ge=20)
    """Maximum length of a plan. Every generated level has a solution within it."""
    num_boxes: int = Field(default=1, ge=1)
    """Number of boxes, and of goals."""
    num_pulls: int = Field(default=12, ge=1)
    """Pulls that move the boxes away from their goals; more pulls make longer levels."""
    data: str = ""
    """Source of the levels: `boxoban`, one of its parts such as `boxoban/medium`, or a file in the
    Boxoban format. Empty: levels are generated."""
    test_data: str = ""
    """Source of the test levels, in the same form. Empty: every tenth level of `data`."""

    @model_validator(mode="before")
    @classmethod
    def _rename_levels(cls, values: Any) -> Any:
        if isinstance(values, dict) and "levels" in values:
            raise ValueError("'levels' is now 'data'; rename the key")
        return values

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        with suppress(MissingDataError):  # the environment raises it; plans do without data
            self.read_data()
        return self

    def read_data(self) -> None:
        """Read the levels of `data` and `test_data`; DataError if they cannot be used."""
        if self.data or self.test_data:
            levels.read_splits_of(self.data, self.test_data)

    @model_validator(mode="after")
    def _check_boxes(self) -> Self:
        room = (self.width - 2) * (self.height - 2) // 4
        if self.num_boxes > room:
            raise ValueError(
                f"num_boxes is {self.num_boxes}, but a {self.width}x{self.height} level has room "
                f"for {room}; set fewer, or a larger width or height"
            )
        return self


class Sokoban(GridPlan[SokobanConfig]):
    """A plan stops at its first impossible move and then does not solve the level."""

    id = "sokoban-v1"
    Config = SokobanConfig
    players = players.PLAYERS
    fail_reward = rules.FAILED

    def __init__(self, config: SokobanConfig | None = None) -> None:
        super().__init__(config)
        self.config.read_data()

    def tasks(self, split: Split) -> Sequence[Task]:
        data, test_data = self.config.data, self.config.test_data
        if not data and (split == "train" or not test_data):
            return super().tasks(split)
        own = levels.read_splits_of(data, test_data)[split == "test"][: self.config.num_tasks]
        prefix = "test-" if test_data and split == "test" else ""
        return [Task(f"{prefix}{level.id}", {"level": level.text}) for level in own]

    def rules(self) -> str:
        signs = "# wall, - floor, @ you, $ box, . goal, * box on a goal, + you on a goal."
        legend = by_observation(self.config.observation, signs, LEGEND)
        return (
            f"The puzzle is Sokoban: {legend} Moving into a box pushes it one cell if the cell "
            "behind it is free of walls and boxes. You cannot pull. A move that is not possible "
            "ends the plan as not solved. At the end of the plan every box must be on a goal. "
            f"{MOVE_RULES} At most {self.config.max_moves} moves."
        )

    def puzzle(self, task: Task) -> Grid:
        return Grid(task.data["level"]) if "level" in task.data else super().puzzle(task)

    def make(self, seed: int) -> Grid:
        c = self.config
        return levels.make_level(seed, c.width, c.height, c.num_boxes, c.num_pulls, c.max_moves)

    def act(self, puzzle: Grid, plan: str | None, answer: str) -> Acted:
        return Acted(*rules.push_on(puzzle, plan or "", answer))

    def position(self, puzzle: Grid, plan: str | None) -> Grid:
        at = rules.after(puzzle, plan or "")
        return rules.drawn(puzzle, at.boxes, at.player)

    def picture(self, puzzle: Grid) -> Image:
        return draw_level(puzzle.text, self.config.cell_pixels)

    def score(self, puzzle: Grid, plan: str) -> float:
        return rules.score_plan(puzzle, plan)

    def paint(self, puzzle: Grid, plan: str | None) -> str:
        if plan is None:
            return puzzle.painted(LOOKS)
        end = rules.after(puzzle, plan)
        stop = "after the plan" if end.possible else "where the plan stops"
        board = rules.drawn(puzzle, end.boxes, end.player).painted(LOOKS)
        return f"{puzzle.painted(LOOKS)}\n[dim]{stop}[/]\n{board}"


@lru_cache(maxsize=1024)
def draw_level(text: str, cell: int) -> Image:
    """The level as an image."""
    return draw_rows(text.split("\n"), cell, _draw_cell).image()


def _draw_cell(board: Board, at: tuple[int, int], symbol: str) -> None:
    if symbol == "#":
        board.square(at, WALL)
    if symbol == ".":
        board.diamond(at, RED, 0.2)
    if symbol == "+":
        board.diamond(at, RED, 0.04)
    if symbol in "@+":
        board.disc(at, BLUE, 0.24 if symbol == "+" else 0.16)
    if symbol in "$*":
        board.square(at, AMBER if symbol == "$" else GREEN, 0.12)
        board.cross(at, INK, 0.22, 0.06)
        board.frame(at, INK, 0.12, 0.07)
