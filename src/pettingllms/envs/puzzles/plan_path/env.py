"""Path planning: a planner and a checker find a way through a maze."""

from typing import Self

from pydantic import Field, model_validator

from pettingllms.envs.puzzles.plan_path import levels, players
from pettingllms.envs.puzzles.plan_path.image import LEGEND, draw_maze
from pettingllms.envs.toolkit.drawing import by_observation
from pettingllms.envs.toolkit.grid import MOVE_RULES, Grid, GridConfig, GridPlan
from pettingllms.types import Image

LOOKS = {
    "#": "██",
    ".": "  ",
    "o": "[yellow]··[/]",
    "S": "[bold cyan]S [/]",
    "G": "[bold magenta]G [/]",
}


class PlanPathConfig(GridConfig):
    """Options of path planning."""

    wall_share: float = Field(default=0.25, ge=0, le=0.6)
    """Share of the cells that are walls; a few less where the maze could not be solved."""
    min_distance: int = Field(default=4, ge=1)
    """Moves that the shortest way has at least."""

    @model_validator(mode="after")
    def _check_distance(self) -> Self:
        longest = min(self.width + self.height - 2, self.max_moves)
        if self.min_distance > longest:
            raise ValueError(
                f"min_distance is {self.min_distance}, but a {self.width}x{self.height} grid with "
                f"max_moves = {self.max_moves} allows {longest}; lower it or widen the grid"
            )
        return self


class PlanPath(GridPlan[PlanPathConfig]):
    """The plan must end on the goal: a walk that only passes over it has not solved the maze."""

    id = "plan_path-v1"
    Config = PlanPathConfig
    players = players.PLAYERS

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

    def picture(self, puzzle: Grid) -> Image:
        return draw_maze(puzzle.text, self.config.cell_pixels)

    def score(self, puzzle: Grid, plan: str) -> float:
        return levels.score_walk(puzzle, plan)

    def paint(self, puzzle: Grid, plan: str | None) -> str:
        cells, _ = levels.walk(puzzle, plan or "")
        dots = {cell: "o" for cell in cells if puzzle.text[cell] == levels.FLOOR}
        return puzzle.put(dots).painted(LOOKS)
