"""Chat messages: the observations that environments write and renderers tokenize."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

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


Speaker = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `speaker` is the chat role, not a role of the environment."""

    speaker: Speaker
    content: str
    parts: tuple[Part, ...] = ()
    """Images and tables, which precede the text in this order."""

    @property
    def images(self) -> tuple[Image, ...]:
        """The images among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Image))

    @property
    def text(self) -> str:
        """The content as text: tables are written out, images are left out."""
        tables = [part.text for part in self.parts if isinstance(part, Table)]
        return "\n\n".join([*tables, *filter(None, [self.content])]) if tables else self.content


def images_of(messages: Iterable[Message]) -> tuple[Image, ...]:
    """All images of messages, in order."""
    return tuple(image for message in messages if message.parts for image in message.images)


def system(content: str, *parts: Part) -> Message:
    """A system message."""
    return Message("system", content, parts)


def user(content: str, *parts: Part) -> Message:
    """A user message."""
    return Message("user", content, parts)


def assistant(content: str) -> Message:
    """An earlier reply of the role."""
    return Message("assistant", content)
