"""Chat messages: the observations that environments write and renderers tokenize."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pettingllms.types.parts import Image, Part, Table

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
