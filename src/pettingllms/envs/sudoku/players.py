"""Scripted players of Sudoku: random digits in the blanks, and backtracking, which solves."""

import random
from typing import Any

from pettingllms.envs.plan_check import Script
from pettingllms.envs.sudoku.levels import BLANK, solution_of


def _solve_for(env: Any, puzzle: str) -> str:
    return solution_of(puzzle)


def _guess(env: Any, puzzle: str, rng: random.Random) -> str:
    digits = env.digits
    return "".join(rng.choice(digits) if cell == BLANK else cell for cell in puzzle)


PLAYERS = Script(_solve_for, _guess).players("backtracking")
