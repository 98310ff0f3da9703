"""Path planning: a planner and a checker find a path through a maze."""

import random
from functools import lru_cache
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.envs.puzzles.plan_path import levels
from pettingllms.envs.toolkit.drawing import BLUE, GREEN, WALL, Board, by_observation, draw_rows
from pettingllms.envs.toolkit.grid import (
    MOVE_RULES,
    Grid,
    GridConfig,
    GridPlan,
    random_moves,
    without_last,
)
from pettingllms.envs.toolkit.plan_check import Acted, Script
from pettingllms.types import Image

LOOKS = {
    "#": "██",
    ".": "  ",
    "o": "[yellow]··[/]",
    "S": "[bold cyan]S [/]",
    "G": "[bold magenta]G [/]",
}
LEGEND = (
    "In the picture a blue disc with an S is the start, a green square with a G is the goal, dark "
    "cells are walls and light cells are free."
)


class PlanPathConfig(GridConfig):
    """Options of path planning."""

    wall_share: float = Field(default=0.25, ge=0, le=0.6)
    """Fraction of cells that are walls; lower where the maze would have no solution."""
    min_distance: int = Field(default=4, ge=1)
    """Minimum length of the shortest path."""

    @model_validator(mode="after")
    def _check_distance(self) -> Self:
        longest = min(self.width + self.height - 2, self.max_moves)
        if self.min_distance > longest:
            raise ValueError(
                f"min_distance is {self.min_distance}, but a {self.width}x{self.height} grid with "
                f"max_moves = {self.max_moves} allows {longest}; lower it or widen the grid"
            )
        return self


def _solve(env: Any, maze: Grid) -> str | None:
    return levels.shortest_plan(maze)


def _walk_blindly(env: Any, maze: Grid, rng: random.Random) -> str:
    """A shortest path through the maze without its walls: all vertical, then all horizontal moves,
    or the other way around."""
    return levels.blind_plan(maze, rng.random() < 0.5)


def _wander(env: Any, maze: Grid, rng: random.Random) -> str:
    """A random walk over free cells that ends elsewhere than on the goal."""
    return levels.random_walk(maze, rng.randint(1, env.config.max_moves), rng)


PLAYERS = {
    **Script(_solve, random_moves, without_last).players("bfs"),
    "wanderer": Script(_solve, _wander, without_last).play_random,
    "blind": Script(_solve, _walk_blindly, without_last).play_blind,
}


class PlanPath(GridPlan[PlanPathConfig]):
    """The plan must end on the goal: a path that only passes over it does not solve the maze."""

    id = "plan_path-v1"
    Config = PlanPathConfig
    players = PLAYERS
    fail_reward = levels.FAILED

    def rules(self) -> str:
        signs = "The puzzle is a grid: S start, G goal, # wall, . free."
        legend = by_observation(self.config.observation, signs, LEGEND)
        return (
            f"{legend} Walk from S and end on G, "
            "without a step into a wall or off the grid, where the walk would stop. "
            f"{MOVE_RULES} At most {self.config.max_moves} moves."
        )

    def make(self, seed: int) -> Grid:
        options = self.config
        return levels.make_maze(
            seed,
            options.width,
            options.height,
            options.wall_share,
            options.min_distance,
            options.max_moves,
        )

    def act(self, puzzle: Grid, plan: str | None, answer: str) -> Acted:
        return Acted(*levels.walk_on(puzzle, plan or "", answer))

    def position(self, puzzle: Grid, plan: str | None) -> Grid:
        cells, _ = levels.walk(puzzle, plan or "")
        return puzzle.put({cells[0]: levels.FLOOR, cells[-1]: levels.START})

    def picture(self, puzzle: Grid) -> Image:
        return draw_maze(puzzle.text, self.config.cell_pixels)

    def score(self, puzzle: Grid, plan: str) -> float:
        return levels.score_walk(puzzle, plan)

    def paint(self, puzzle: Grid, plan: str | None) -> str:
        cells, _ = levels.walk(puzzle, plan or "")
        dots = {cell: "o" for cell in cells if puzzle.text[cell] == levels.FLOOR}
        return puzzle.put(dots).painted(LOOKS)


@lru_cache(maxsize=1024)
def draw_maze(text: str, cell: int) -> Image:
    """The maze as an image."""
    return draw_rows(text.split("\n"), cell, _draw_cell).image()


def _draw_cell(board: Board, at: tuple[int, int], symbol: str) -> None:
    match symbol:
        case "#":
            board.square(at, WALL)
        case "S":
            board.disc(at, BLUE, 0.1)
            board.letter(at, "S", "white", 0.64)
        case "G":
            board.square(at, GREEN, 0.1)
            board.letter(at, "G", "white", 0.64)
