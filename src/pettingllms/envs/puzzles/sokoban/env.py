"""Sokoban: a planner and a checker push every box onto a goal."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

from pydantic import Field, field_validator, model_validator

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
    levels: str | None = None
    """A file in the Boxoban format whose levels are the tasks; every tenth is a test task."""

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                levels.read_levels(path)
            except OSError as error:
                raise ValueError(f"cannot read the file: {error}") from None
        return path

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

    def tasks(self, split: Split) -> Sequence[Task]:
        if self.config.levels is None:
            return super().tasks(split)
        found = levels.read_levels(self.config.levels)
        number = {text: at for at, text in enumerate(dict.fromkeys(one.text for one in found))}
        chosen = [
            Task(f"level-{at}", {"level": level.text})
            for at, level in enumerate(found)
            if (number[level.text] % 10 == 0) == (split == "test")
        ]
        return chosen[: self.config.num_tasks]

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
