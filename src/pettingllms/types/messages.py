"""What a role is shown: chat messages, the view that environments write and renderers read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pettingllms.types.parts import Image, Part, Table

Speaker = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `speaker` is the chat's side, not a role of the environment."""

    speaker: Speaker
    content: str
    parts: tuple[Part, ...] = ()
    """Images and tables; they stand before the text, in this order."""

    @property
    def images(self) -> tuple[Image, ...]:
        """The pictures among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Image))

    @property
    def text(self) -> str:
        """All that can be read: tables are written out, and of images nothing is left."""
        tables = [part.text for part in self.parts if isinstance(part, Table)]
        return "\n\n".join([*tables, *filter(None, [self.content])]) if tables else self.content


def images_of(messages: Iterable[Message]) -> tuple[Image, ...]:
    """All pictures of messages, in their order."""
    return tuple(image for message in messages if message.parts for image in message.images)


def system(content: str, *parts: Part) -> Message:
    """A message that sets the scene."""
    return Message("system", content, parts)


def user(content: str, *parts: Part) -> Message:
    """A message that asks the role something."""
    return Message("user", content, parts)


def assistant(content: str) -> Message:
    """A message that the role itself said earlier."""
    return Message("assistant", content)
