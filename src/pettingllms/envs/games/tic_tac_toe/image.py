"""A board of tic-tac-toe as a picture."""

from functools import lru_cache

from pettingllms.envs.toolkit.drawing import BLUE, GREY, RED, Board
from pettingllms.types import Image

LEGEND = "In the picture X is a blue cross, O a red ring, and a grey number stands in a free cell."


@lru_cache(maxsize=8192)
def draw_board(cells: str, cell: int) -> Image:
    """The board of nine cells."""
    board = Board(3, 3, cell)
    board.lines()
    for number, mark in enumerate(cells):
        at = (number % 3, number // 3)
        match mark:
            case "X":
                board.cross(at, BLUE, 0.26, 0.13)
            case "O":
                board.ring(at, RED, 0.18, 0.13)
            case _:
                board.letter(at, str(number + 1), GREY, 0.5)
    return board.image()
