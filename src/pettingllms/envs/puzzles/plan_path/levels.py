"""Maze generation from a seed, and the score of a path."""

import random
from functools import lru_cache
from itertools import count

from pettingllms.envs.toolkit.grid import OPPOSITE, WALL, Grid, distances, shortest_walk
from pettingllms.seeds import derive_seed

START, GOAL, FLOOR = "S", "G", "."
STEP, ILLEGAL, ARRIVED, SHORTEST, FAILED = -0.01, -0.10, 1.0, 0.5, -1.0
"""Rewards of AT-GRPO's Plan-Path: of a move, of an impossible one, of the goal, of reaching it by a
shortest path, and of never reaching it."""
GAMMA = 0.99
"""Discount of the potential. The potential is from -1 to 0, so that no walk earns by its length."""
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


def blind_plan(maze: Grid, rows_first: bool) -> str:
    """A path that ignores walls: straight along the rows and straight along the columns."""
    width = maze.steps["D"]
    (row, column), (to_row, to_column) = (
        divmod(maze.text.index(symbol), width) for symbol in START + GOAL
    )
    down, right = to_row - row, to_column - column
    vertical = ("D" if down > 0 else "U") * abs(down)
    horizontal = ("R" if right > 0 else "L") * abs(right)
    return horizontal + vertical if rows_first else vertical + horizontal


def random_walk(maze: Grid, num_moves: int, rng: random.Random) -> str:
    """Random moves over free cells, which turn back only in a dead end. A walk that would end on
    the goal is one move shorter, so no walk is a solution."""
    free, steps = maze.floor(), maze.steps
    at, plan = maze.text.index(START), ""
    for _ in range(num_moves):
        open_moves = [move for move, step in steps.items() if at + step in free]
        ahead = [move for move in open_moves if not plan or move != OPPOSITE[plan[-1]]]
        plan += rng.choice(ahead or open_moves)
        at += steps[plan[-1]]
    if maze.text[at] == GOAL:
        plan = plan[:-1] or OPPOSITE[plan]
    return plan


def walk_on(maze: Grid, plan: str, more: str) -> tuple[str, float]:
    """The moves so far after more of them, which end at an impossible one or on the goal, and the
    reward of these."""
    floor, steps, goal = maze.floor(), maze.steps, maze.text.index(GOAL)
    away = distances(floor, [goal], steps.values())
    at, first, reward = walk(maze, plan)[0][-1], away[maze.text.index(START)], 0.0
    for move in more:
        ahead = at + steps[move]
        if at == goal or ahead not in floor:
            return plan, reward + ILLEGAL * (at != goal)
        before, after = (-min(1.0, away[cell] / first) for cell in (at, ahead))
        reward += STEP + GAMMA * after - before
        plan, at = plan + move, ahead
        if at == goal:
            reward += ARRIVED + SHORTEST * (len(plan) == first)
    return plan, reward


def shortest_plan(maze: Grid) -> str | None:
    """A shortest path from start to goal."""
    start, goal = maze.text.index(START), maze.text.index(GOAL)
    return shortest_walk(maze.floor(), start, goal, maze.steps)
