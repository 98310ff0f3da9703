"""Scripted players of Sudoku: random digits in the blanks, and backtracking, which solves."""

import random
from typing import Any

from pettingllms.envs.puzzles.sudoku.levels import BLANK, solution_of
from pettingllms.envs.toolkit.plan_check import Script


def _solve_for(env: Any, puzzle: str) -> str:
    return solution_of(puzzle)


def _guess(env: Any, puzzle: str, rng: random.Random) -> str:
    digits = env.digits
    return "".join(rng.choice(digits) if cell == BLANK else cell for cell in puzzle)


def _spoil(env: Any, puzzle: str, solution: str) -> str:
    """The last blank holds another digit."""
    last = puzzle.rindex(BLANK)
    other: str = env.digits[int(solution[last]) % len(env.digits)]
    return solution[:last] + other + solution[last + 1 :]


PLAYERS = Script(_solve_for, _guess, _spoil).players("backtracking")
