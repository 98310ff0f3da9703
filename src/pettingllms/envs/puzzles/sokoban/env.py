"""Sokoban: a planner and a checker push every box onto a goal."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field, field_validator, model_validator

from pettingllms.envs.base import Split
from pettingllms.envs.puzzles.sokoban import levels, players, rules
from pettingllms.envs.puzzles.sokoban.image import LEGEND, draw_level
from pettingllms.envs.toolkit.drawing import by_observation
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


class SokobanConfig(GridConfig):
    """Options of Sokoban."""

    width: int = Field(default=6, ge=5, le=32)
    """Columns of a level, its outer walls among them."""
    height: int = Field(default=6, ge=5, le=32)
    """Rows of a level, its outer walls among them."""
    max_moves: int = Field(default=200, ge=20)
    """Moves that a plan may have. Every level that is made here can be solved with so many."""
    num_boxes: int = Field(default=1, ge=1)
    """Boxes in a level, and goals."""
    num_pulls: int = Field(default=12, ge=1)
    """Pulls that take the boxes away from their goals: more make a longer level."""
    levels: str | None = None
    """A file in the Boxoban format. Its levels are the tasks, every tenth of them for testing."""

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                levels.read_levels(path)
            except OSError as error:
                raise ValueError(f"the file cannot be read: {error}") from None
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
    """A plan stops at its first impossible move, and has not solved the level then."""

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
