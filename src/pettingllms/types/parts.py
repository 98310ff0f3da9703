"""What a message holds beside its text: images and tables, as plain data.

An image is the bytes of a PNG file and nothing more, so that it can be compared, pickled and stored
once however often it was shown; nobody decodes it here. A table is text for whoever only reads.
"""

import hashlib
from dataclasses import dataclass, field

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, as the bytes of a PNG file. Two are equal if their bytes are."""

    data: bytes = field(repr=False)
    digest: str = field(init=False, compare=False)
    """SHA-256 of the bytes: the name that it is stored under."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            raise TypeError(f"an image is {type(self.data).__name__}; give the bytes of a PNG file")
        object.__setattr__(self, "digest", hashlib.sha256(self.data).hexdigest())


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(f"row {wrong[0]!r:.60} does not fit {len(self.columns)} columns")

    @property
    def text(self) -> str:
        """The table in Markdown; an absent value is an empty cell."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(map(_shown, line))} |" for line in lines)


Part = Image | Table
"""What a message may hold beside its text."""


def _shown(cell: Cell) -> str:
    text = "" if cell is None else str(cell)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
