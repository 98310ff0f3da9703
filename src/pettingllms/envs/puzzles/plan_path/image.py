"""A maze as a picture."""

from functools import lru_cache

from pettingllms.envs.toolkit.drawing import BLUE, GREEN, WALL, Board, draw_rows
from pettingllms.types import Image

LEGEND = (
    "In the picture a blue disc with an S is the start, a green square with a G is the goal, dark "
    "cells are walls and light cells are free."
)


@lru_cache(maxsize=1024)
def draw_maze(text: str, cell: int) -> Image:
    """The maze of these rows."""
    return draw_rows(text.split("\n"), cell, _paint).image()


def _paint(board: Board, at: tuple[int, int], symbol: str) -> None:
    match symbol:
        case "#":
            board.square(at, WALL)
        case "S":
            board.disc(at, BLUE, 0.1)
            board.letter(at, "S", "white", 0.64)
        case "G":
            board.square(at, GREEN, 0.1)
            board.letter(at, "G", "white", 0.64)
