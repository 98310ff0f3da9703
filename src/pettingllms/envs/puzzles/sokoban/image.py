"""A level of Sokoban as a picture."""

from functools import lru_cache

from pettingllms.envs.toolkit.drawing import AMBER, BLUE, GREEN, INK, RED, WALL, Board, draw_rows
from pettingllms.types import Image

LEGEND = (
    "In the picture dark cells are walls, the blue disc is you, a crossed amber crate is a box, a "
    "red diamond is a goal, a crossed green crate is a box on a goal, and a red diamond behind the "
    "disc is a goal that you stand on."
)


@lru_cache(maxsize=1024)
def draw_level(text: str, cell: int) -> Image:
    """The level of these rows."""
    return draw_rows(text.split("\n"), cell, _paint).image()


def _paint(board: Board, at: tuple[int, int], symbol: str) -> None:
    if symbol == "#":
        board.square(at, WALL)
    if symbol == ".":
        board.diamond(at, RED, 0.2)
    if symbol == "+":
        board.diamond(at, RED, 0.04)
    if symbol in "@+":
        board.disc(at, BLUE, 0.24 if symbol == "+" else 0.16)
    if symbol in "$*":
        board.square(at, AMBER if symbol == "$" else GREEN, 0.12)
        board.cross(at, INK, 0.22, 0.06)
        board.frame(at, INK, 0.12, 0.07)
