"""How the bulk of a turn is written as JSON: its messages, token ids and numbers per token.

A line that stands alone has them in place. Shards store them as packed arrays, and their lines have
lengths instead.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pettingllms.errors import RecordError
from pettingllms.types.image_files import ImageLoader
from pettingllms.types.messages import Image, Message, Part, Table
from pettingllms.types.turns import Ids, Values

LINE_FORMAT = 2
"""Format of lines that stand alone."""


class Packing(Protocol):
    """Writes the bulk of turns, one turn after another."""

    format: int
    """Format number of the lines."""

    def messages(self, messages: Sequence[Message], /) -> list[Any]:
        """JSON values that stand for the messages of a turn."""
        ...

    def prompt(self, role: str, ids: Ids, /) -> Any:
        """A JSON value that stands for the prompt of a role."""
        ...

    def ids(self, name: str, ids: Ids, /) -> Any:
        """A JSON value that stands for other integers."""
        ...

    def values(self, name: str, values: Values, /) -> Any:
        """A JSON value that stands for numbers."""
        ...


class Unpacking(Protocol):
    """Reads what a packing wrote, in the same order."""

    def messages(self, data: Sequence[Any], /) -> tuple[Message, ...]:
        """The messages of a turn."""
        ...

    def image(self, digest: str, /) -> Image:
        """The image with a digest."""
        ...

    def prompt(self, data: Any, /) -> Ids:
        """The prompt of a turn."""
        ...

    def ids(self, name: str, data: Any, /) -> Ids:
        """Other integers."""
        ...

    def values(self, name: str, data: Any, /) -> Values:
        """Numbers."""
        ...


class InLine:
    """Writes everything in place. Non-finite numbers other than log-probs become null."""

    format = LINE_FORMAT

    def messages(self, messages: Sequence[Message]) -> list[Any]:
        """Messages as objects."""
        return [message_to_json(message) for message in messages]

    def prompt(self, _role: str, ids: Ids, /) -> Any:
        """A list."""
        return ids.tolist()

    def ids(self, _name: str, ids: Ids, /) -> Any:
        """A list."""
        return ids.tolist()

    def values(self, name: str, values: Values) -> Any:
        """A list of the shortest decimals of the float64 values."""
        found = values.tolist()
        if name == "logprobs":
            return found
        return [value if math.isfinite(value) else None for value in found]


class FromLine:
    """Reads lines that stand alone."""

    def __init__(self, load_image: ImageLoader) -> None:
        self.image = load_image

    def messages(self, data: Sequence[Any]) -> tuple[Message, ...]:
        """Messages from objects."""
        return tuple(message_from_json(one, self.image) for one in data)

    def prompt(self, data: Any) -> Ids:
        """An array from a list."""
        return np.array(data, np.int32)

    def ids(self, _name: str, data: Any, /) -> Ids:
        """An array from a list."""
        return np.array(data, np.int32)

    def values(self, name: str, data: Any) -> Values:
        """An array from a list; null is NaN."""
        if name == "logprobs":
            return np.array(data, np.float32)
        return np.array([math.nan if value is None else value for value in data], np.float32)


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as an object."""
    parts = [_part_to_json(part) for part in message.parts]
    written = {"role": message.speaker, "content": message.content}
    return written | ({"parts": parts} if parts else {})


def message_from_json(data: Mapping[str, Any], load_image: ImageLoader) -> Message:
    """A message from an object."""
    parts = tuple(_part_from_json(part, load_image) for part in data.get("parts", ()))
    return Message(data["role"], data["content"], parts)


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case Image():
            return {"image": part.digest}
        case Table(columns, rows):
            return {"table": [list(columns), *map(list, rows)]}


def _part_from_json(data: Mapping[str, Any], load_image: ImageLoader) -> Part:
    match dict(data):
        case {"image": str(digest)}:
            return load_image(digest)
        case {"table": [columns, *rows]}:
            return Table(tuple(columns), tuple(map(tuple, rows)))
    raise RecordError(f"unknown message part with keys {sorted(data)}")
