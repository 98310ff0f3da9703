"""What a role is shown: chat messages, the view that environments write and renderers read."""

from dataclasses import dataclass
from typing import Literal

Speaker = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `speaker` is the chat's side, not a role of the environment."""

    speaker: Speaker
    content: str


def system(content: str) -> Message:
    """A message that sets the scene."""
    return Message("system", content)


def user(content: str) -> Message:
    """A message that asks the role something."""
    return Message("user", content)


def assistant(content: str) -> Message:
    """A message that the role itself said earlier."""
    return Message("assistant", content)
