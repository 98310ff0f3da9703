"""Board images: cells in rows, drawn with Pillow in simple, distinct shapes.

Everything is drawn at a larger scale and scaled down for smooth edges. A cell of 28 pixels is one
image token of the Qwen models.
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


class BoardImageConfig(EnvConfig):
    """Options of environments that can show their board as an image."""

    observation: Observation = "text"
    """How the board is shown: as text, as an image, or both. An image needs a VLM policy and the
    extra `vision`."""
    cell_pixels: int = Field(default=28, ge=12, le=128)
    """Width and height of a cell in pixels."""


def by_observation(observation: Observation, text: str, image: str) -> str:
    """The prompt text that describes the board for an observation mode."""
    return {"text": text, "image": image, "both": f"{text} {image}"}[observation]


class Board:
    """A canvas of cells. Coordinates inside a cell range from 0 to 1."""

    def __init__(self, columns: int, rows: int, cell: int) -> None:
        from PIL import Image as pillow  # noqa: N813 - it is a module
        from PIL import ImageDraw

        self.columns, self.rows = columns, rows
        self._size = (columns * cell, rows * cell)
        self._cell = cell * SCALE
        self._sheet = pillow.new("RGB", (columns * self._cell, rows * self._cell), PAPER)
        self._draw = ImageDraw.Draw(self._sheet)

    def image(self) -> Image:
        """The finished image."""
        from PIL.Image import Resampling

        return make_image(self._sheet.resize(self._size, Resampling.BOX))

    def lines(self, every: int = 1, width: float = 0.04, color: str = LINE) -> None:
        """Draw lines between every `every` cells and around the board."""
        across, down = self._sheet.size
        thick = max(SCALE, round(width * self._cell))
        for at in range(0, self.columns + 1, every):
            x = min(max(at * self._cell - thick // 2, 0), across - thick)
            self._draw.rectangle((x, 0, x + thick - 1, down), fill=color)
        for at in range(0, self.rows + 1, every):
            y = min(max(at * self._cell - thick // 2, 0), down - thick)
            self._draw.rectangle((0, y, across, y + thick - 1), fill=color)

    def square(self, at: tuple[int, int], color: str, inset: float = 0.0) -> None:
        """Draw a filled square in a cell."""
        self._draw.rectangle(self._box(at, inset), fill=color)

    def frame(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """Draw the outline of a square in a cell."""
        self._draw.rectangle(self._box(at, inset), outline=color, width=round(width * self._cell))

    def disc(self, at: tuple[int, int], color: str, inset: float) -> None:
        """Draw a filled circle."""
        self._draw.ellipse(self._box(at, inset), fill=color)

    def ring(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """Draw a circle."""
        self._draw.ellipse(self._box(at, inset), outline=color, width=round(width * self._cell))

    def diamond(self, at: tuple[int, int], color: str, inset: float) -> None:
        """Draw a filled diamond."""
        left, top, right, bottom = self._box(at, inset)
        x, y = (left + right) / 2, (top + bottom) / 2
        self._draw.polygon([(x, top), (right, y), (x, bottom), (left, y)], fill=color)

    def cross(self, at: tuple[int, int], color: str, inset: float, width: float) -> None:
        """Draw both diagonals of a square, with round ends."""
        left, top, right, bottom = self._box(at, inset)
        thick = width * self._cell
        for ends in ((left, top, right, bottom), (left, bottom, right, top)):
            self._draw.line(ends, fill=color, width=round(thick))
        for x in (left, right):
            for y in (top, bottom):
                half = thick / 2
                self._draw.ellipse((x - half, y - half, x + half, y + half), fill=color)

    def letter(self, at: tuple[int, int], text: str, color: str, size: float = 0.66) -> None:
        """Draw a letter or digit in the center of a cell; `size` is its share of the cell
        height."""
        from PIL import ImageFont

        left, top, right, bottom = self._box(at, 0)
        font: Any = ImageFont.load_default(round(size * self._cell))
        bold: Any = {"stroke_width": round(0.015 * self._cell)}
        middle = ((left + right) / 2, (top + bottom) / 2)
        # Center the glyph's bounding box rather than its line, so that digits look centered.
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
    """Paint every symbol of the rows on a board, then draw thin lines so that adjacent wall
    cells can be counted."""
    board = Board(len(rows[0]), len(rows), cell)
    for y, row in enumerate(rows):
        for x, symbol in enumerate(row):
            paint(board, (x, y), symbol)
    board.lines()
    return board
