"""Scripted players of path planning: random moves, and breadth-first search."""

from typing import Any

from pettingllms.envs.puzzles.plan_path.levels import shortest_plan
from pettingllms.envs.toolkit.grid import Grid, random_moves, without_last
from pettingllms.envs.toolkit.plan_check import Script


def _solve_for(env: Any, maze: Grid) -> str | None:
    return shortest_plan(maze)


PLAYERS = Script(_solve_for, random_moves, without_last).players("bfs")
