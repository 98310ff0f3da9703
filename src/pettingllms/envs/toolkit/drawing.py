"""Boards as pictures: squares in rows, drawn with Pillow in few clear shapes.

Everything is drawn large and scaled down, so that edges are smooth. A cell of 28 pixels is what the
Qwen models take for one token of a picture.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.types import Image
from pettingllms.vision.images import make_image

SCALE = 4
INK, PAPER, LINE, WALL = "#1f2933", "#fbfbf8", "#b3bbc6", "#3b4754"
BLUE, RED, GREEN, AMBER, GREY = "#1d6fd1", "#d1362f", "#1e8e4e", "#c98a2b", "#7b8794"
Box = tuple[float, float, float, float]
Observation = Literal["text", "image", "both"]


class SeenConfig(EnvConfig):
    """Options of environments whose boards can be seen."""

    observation: Observation = "text"
    """How the board is shown: as text, as an image, or both. An image needs a policy that sees, and
    the extra `vision`."""
    cell_pixels: int = Field(default=28, ge=12, le=128)
    """Width and height of a cell of the image."""


def by_observation(observation: Observation, text: str, image: str) -> str:
    """What a prompt says about a board, by how the board is shown."""
    return {"text": text, "image": image, "both": f"{text} {image}"}[observation]


class Board:
    """A sheet of cells to draw on. Places inside a cell go from 0 to 1."""

    def __init__(self, columns: int, rows: int, cell: int) -> None:
        from PIL import Image as pillow  # noqa: N813 - it is a module
        from PIL import ImageDraw

        self.columns, self.rows = columns, rows
        self._size = (columns * cell, rows * cell)
        self._cell = cell * SCALE
        self._sheet = pillow.new("RGB", (columns * self._cell, rows * self._cell), PAPER)
        self._draw = ImageDraw.Draw(self._sheet)

    def image(self) -> Image:
        """What was drawn."""
        from PIL.Image import Resampling

        return make_image(self._sheet.resize(self._size, Resampling.BOX))

    def lines(self, every: int = 1, width: float = 0.04, color: str = LINE) -> None:
        """Lines between every so many cells, and around the board."""
        across, down = self._sheet.size
        thick = max(SCALE, round(width * self._cell))
        for at in range(0, self.columns + 1, every):
            x = min(max(at * self._cell - thick // 2, 0), across - thick)
            self._draw.rectangle((x, 0, x + thick - 1, down), fill=color)
        for at in range(0, self.rows + 1, every):
            y = min(max(at * self._cell - thick // 2, 0), down - thick)
            self._draw.rectangle((0, y, across, y + thick - 1), fill=color)

    def square(self, at: tuple[int, int], color: str, inset: float = 0.0) -> None:
        """A filled square in a cell."""
        self._draw.rectangle(self._box(at, inset), fill=color)

    def frame(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """The edges of a square in a cell."""
        self._draw.rectangle(self._box(at, inset), outline=color, width=round(width * self._cell))

    def disc(self, at: tuple[int, int], color: str, inset: float) -> None:
        """A filled circle."""
        self._draw.ellipse(self._box(at, inset), fill=color)

    def ring(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """A circle."""
        self._draw.ellipse(self._box(at, inset), outline=color, width=round(width * self._cell))

    def diamond(self, at: tuple[int, int], color: str, inset: float) -> None:
        """A filled square that stands on its corner."""
        left, top, right, bottom = self._box(at, inset)
        x, y = (left + right) / 2, (top + bottom) / 2
        self._draw.polygon([(x, top), (right, y), (x, bottom), (left, y)], fill=color)

    def cross(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """Both diagonals of a square, with round ends."""
        left, top, right, bottom = self._box(at, inset)
        thick = width * self._cell
        for ends in ((left, top, right, bottom), (left, bottom, right, top)):
            self._draw.line(ends, fill=color, width=round(thick))
        for x in (left, right):
            for y in (top, bottom):
                half = thick / 2
                self._draw.ellipse((x - half, y - half, x + half, y + half), fill=color)

    def letter(self, at: tuple[int, int], text: str, color: str, size: float = 0.66) -> None:
        """A letter or digit in the middle of a cell; `size` is its share of the height."""
        from PIL import ImageFont

        left, top, right, bottom = self._box(at, 0)
        font: Any = ImageFont.load_default(round(size * self._cell))
        bold: Any = {"stroke_width": round(0.015 * self._cell)}
        middle = ((left + right) / 2, (top + bottom) / 2)
        # By the ink and not by the line, so that a digit does not hang in its cell.
        low = self._draw.textbbox(middle, text, font=font, anchor="mm")
        shift = middle[1] - (low[1] + low[3]) / 2
        aside = middle[0] - (low[0] + low[2]) / 2
        place = (middle[0] + aside, middle[1] + shift)
        self._draw.text(place, text, fill=color, font=font, anchor="mm", **bold)

    def _box(self, at: tuple[int, int], inset: float) -> Box:
        x, y = at[0] * self._cell, at[1] * self._cell
        gap = inset * self._cell
        return (x + gap, y + gap, x + self._cell - 1 - gap, y + self._cell - 1 - gap)


def draw_rows(
    rows: Sequence[str], cell: int, paint: Callable[[Board, tuple[int, int], str], None]
) -> Board:
    """A board on which every symbol of some rows was painted, under thin lines: cells of one wall
    can be counted."""
    board = Board(len(rows[0]), len(rows), cell)
    for y, row in enumerate(rows):
        for x, symbol in enumerate(row):
            paint(board, (x, y), symbol)
    board.lines()
    return board
