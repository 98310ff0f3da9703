"""Multimodal parts of a message: images and tables, as plain data.

An image is the bytes of a PNG file, so it can be compared, pickled and stored once; nothing here
decodes it. A table is rendered as text for text-only models.
"""

import hashlib
from dataclasses import dataclass, field

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Image:
    """An image, as the bytes of a PNG file. Images are equal if their bytes are."""

    data: bytes = field(repr=False)
    digest: str = field(init=False, compare=False)
    """SHA-256 of the bytes, under which the image is stored."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            raise TypeError(
                f"Image got {type(self.data).__name__}; expected the bytes of a PNG file"
            )
        object.__setattr__(self, "digest", hashlib.sha256(self.data).hexdigest())


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(
                f"row {wrong[0]!r:.60} has {len(wrong[0])} cells; expected {len(self.columns)}"
            )

    @property
    def text(self) -> str:
        """The table in Markdown; None is an empty cell."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(map(_cell_text, line))} |" for line in lines)


Part = Image | Table
"""A part of a message besides its text."""


def _cell_text(cell: Cell) -> str:
    text = "" if cell is None else str(cell)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
