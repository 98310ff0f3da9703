"""A Sudoku as a picture."""

from functools import lru_cache
from math import isqrt

from pettingllms.envs.puzzles.sudoku.levels import BLANK
from pettingllms.envs.toolkit.drawing import INK, Board
from pettingllms.types import Image

LEGEND = "In the picture an empty cell is a blank, and thick lines are around the boxes."


@lru_cache(maxsize=1024)
def draw_grid(cells: str, cell: int) -> Image:
    """The grid of these cells, row after row."""
    size = isqrt(len(cells))
    board = Board(size, size, cell)
    board.lines()
    board.lines(every=isqrt(size), width=0.1, color=INK)
    for at, digit in enumerate(cells):
        if digit != BLANK:
            board.letter((at % size, at // size), digit, INK, 0.7)
    return board.image()
