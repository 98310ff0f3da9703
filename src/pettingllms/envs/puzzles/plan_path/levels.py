"""Maze generation from a seed, and the score of a path."""

import random
from functools import lru_cache
from itertools import count

from pettingllms.envs.toolkit.grid import WALL, Grid, distances, shortest_walk
from pettingllms.seeds import derive_seed

START, GOAL, FLOOR = "S", "G", "."
MAX_ATTEMPTS = 200
"""Attempts with fewer and fewer walls. The last have none, so generation always terminates."""


@lru_cache(maxsize=4096)
def make_maze(
    seed: int, width: int, height: int, wall_share: float, min_distance: int, max_moves: int
) -> Grid:
    """Generate a maze whose goal is between `min_distance` and `max_moves` away."""
    num_walls = round(wall_share * width * height)
    for attempt in count():
        rng = random.Random(derive_seed("plan_path", seed, attempt))
        grid = _room(rng, width, height, int(num_walls * max(0.0, 1 - attempt / MAX_ATTEMPTS)))
        goal = rng.choice(sorted(grid.floor()))
        away = distances(grid.floor(), [goal], grid.steps.values())
        starts = [cell for cell, far in away.items() if min_distance <= far <= max_moves]
        if starts:
            return grid.put({goal: GOAL, rng.choice(starts): START})
    raise AssertionError("count() has no end")


def _room(rng: random.Random, width: int, height: int, num_walls: int) -> Grid:
    symbols = [WALL] * num_walls + [FLOOR] * (width * height - num_walls)
    rng.shuffle(symbols)
    rows = ["".join(symbols[at : at + width]) for at in range(0, width * height, width)]
    return Grid("\n".join(rows))


def walk(maze: Grid, plan: str) -> tuple[list[int], bool]:
    """The cells that a plan visits, and whether every move was possible."""
    floor, steps = maze.floor(), maze.steps
    cells = [maze.text.index(START)]
    for move in plan:
        ahead = cells[-1] + steps[move]
        if ahead not in floor:
            return cells, False
        cells.append(ahead)
    return cells, True


def score_walk(maze: Grid, plan: str) -> float:
    """1 if the path ends on the goal without hitting a wall; else below 1, by final distance."""
    cells, whole = walk(maze, plan)
    goal = maze.text.index(GOAL)
    if whole and cells[-1] == goal:
        return 1.0
    away = distances(maze.floor(), [goal], maze.steps.values())
    return 0.9 * max(0.0, 1.0 - away[cells[-1]] / away[cells[0]])


def shortest_plan(maze: Grid) -> str | None:
    """A shortest path from start to goal."""
    start, goal = maze.text.index(START), maze.text.index(GOAL)
    return shortest_walk(maze.floor(), start, goal, maze.steps)
