"""Images of boards with pieces; letters name columns and numbers name rows."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pettingllms.envs.toolkit.drawing import AMBER, BLUE, GREEN, INK, LINE, PAPER, RED, WALL, Board
from pettingllms.types import Image

Labels = Literal["edge", "cells"]
Pieces = tuple[tuple[str, int], ...]
COLORS: Mapping[str, str] = {
    "red": RED,
    "blue": BLUE,
    "green": GREEN,
    "yellow": AMBER,
    "black": INK,
    "purple": "#8a3fb0",
}


def cell_name(cell: int, side: int) -> str:
    """The column letter and row number of a cell."""
    return f"{'ABCDEF'[cell % side]}{cell // side + 1}"


@lru_cache(maxsize=8192)
def draw_pieces(side: int, pieces: Pieces, pixels: int, labels: Labels = "edge") -> Image:
    """A board with pieces of these colors on these cells."""
    return (_labeled_at_edge if labels == "edge" else _labeled_in_cells)(side, pieces, pixels)


def _labeled_at_edge(side: int, pieces: Pieces, pixels: int) -> Image:
    board = Board(side + 1, side + 1, pixels)
    board.lines()
    for at in range(side + 1):
        board.square((at, 0), LINE)
        board.square((0, at), LINE)
    for at in range(side):
        board.letter((at + 1, 0), "ABCDEF"[at], WALL, 0.6)
        board.letter((0, at + 1), str(at + 1), WALL, 0.6)
    for color, cell in pieces:
        board.disc((cell % side + 1, cell // side + 1), COLORS[color], 0.14)
    return board.image()


def _labeled_in_cells(side: int, pieces: Pieces, pixels: int) -> Image:
    board = Board(side, side, pixels)
    board.lines()
    color_of = {cell: color for color, cell in pieces}
    for cell in range(side**2):
        at = (cell % side, cell // side)
        if cell in color_of:
            board.disc(at, COLORS[color_of[cell]], 0.04)
        board.letter(at, cell_name(cell, side), PAPER if cell in color_of else WALL, 0.5)
    return board.image()
