"""Sudoku, `sudoku-v1`."""

from pettingllms.envs.sudoku.env import Sudoku, SudokuConfig

__all__ = ["Sudoku", "SudokuConfig"]
