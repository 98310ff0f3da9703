"""Sudoku, `sudoku-v1`."""

from pettingllms.envs.puzzles.sudoku.env import Sudoku, SudokuConfig

__all__ = ["Sudoku", "SudokuConfig"]
