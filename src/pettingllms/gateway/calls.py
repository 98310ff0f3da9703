"""Model calls of a program and the replies to them, independent of the API dialect."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pettingllms.types import Ids, Image, Turn

Speaker = Literal["system", "user", "assistant", "tool"]
MAX_REPLIES = 16
"""Replies that one call may request."""


class CallError(Exception):
    """A rejected call. The server responds with this status, in the caller's dialect."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


def load_json(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON; ValueError if it is invalid, too deep, or contains a lone surrogate.
    `constant` handles NaN and infinities."""
    try:
        found = json.loads(text, parse_constant=constant)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool call of a model. The result refers to it by id."""

    id: str
    name: str
    arguments: str
    """A JSON object, as text."""

    @property
    def values(self) -> Any:
        """The parsed arguments; the text itself if it is not valid JSON."""
        try:
            return load_json(self.arguments)
        except ValueError:
            return self.arguments


class Placed(NamedTuple):
    """An image in a message's text."""

    at: int
    """Number of characters of text before the image."""
    image: Image


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One chat message of a program."""

    speaker: Speaker
    content: str = ""
    calls: tuple[CalledTool, ...] = ()
    """Tool calls of an assistant message."""
    answers: str = ""
    """Id of the tool call that a tool message answers."""
    name: str = ""
    """Tool that a tool message comes from, if the program names it."""
    images: tuple[Placed, ...] = ()
    """In the order of the text."""

    def as_json(self) -> dict[str, Any]:
        """The message in the format of chat templates, with tool arguments as objects."""
        found: dict[str, Any] = {"role": self.speaker, "content": self._parts()}
        if self.calls:
            found["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.values},
                }
                for call in self.calls
            ]
        if self.answers:
            found["tool_call_id"] = self.answers
        if self.name:
            found["name"] = self.name
        return found

    def key(self) -> str:
        """Equal for messages that differ only in the formatting of JSON arguments."""
        calls = [[call.id, call.name, call.values] for call in self.calls]
        images = [[at, image.digest] for at, image in self.images]
        parts = [self.speaker, self.content, calls, self.answers, self.name, images]
        return json.dumps(parts, sort_keys=True)

    def _parts(self) -> str | list[dict[str, str]]:
        """A string if there are no images; else text parts and image placeholders, in order."""
        if not self.images:
            return self.content
        parts, start = [], 0
        for at, _ in self.images:
            parts += [{"type": "text", "text": self.content[start:at]}, {"type": "image"}]
            start = at
        parts.append({"type": "text", "text": self.content[start:]})
        return [part for part in parts if part.get("text") != ""]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a program offers."""

    name: str
    about: str = ""
    parameters: Mapping[str, Any] | None = None
    """JSON schema of its arguments."""

    def as_json(self) -> dict[str, Any]:
        """The tool in the format of chat templates."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        function = {"name": self.name, "description": self.about, "parameters": dict(parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A program's request for replies."""

    model: str
    messages: tuple[ChatMessage, ...] = ()
    text: str | None = None
    """A bare prompt, instead of messages."""
    prompt_ids: Ids | None = None
    """A bare prompt as token ids."""
    tools: tuple[ToolSpec, ...] = ()
    must_call: str | None = None
    """`any`, or the name of the tool that must be called."""
    schema: str | None = None
    """JSON schema of the reply."""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    num_replies: int = 1
    headers: Mapping[str, str]
    """Headers of the request with lowercase names, without those that contain keys."""
    num_bytes: int = 0
    """Size of the request's body."""

    @property
    def images(self) -> tuple[Image, ...]:
        """All images of the messages, in order."""
        return images_in(self.messages)


def images_in(messages: Sequence[ChatMessage]) -> tuple[Image, ...]:
    """The images of a chat, in order."""
    return tuple(placed.image for message in messages for placed in message.images)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as the program receives it, with the recorded turn."""

    id: str
    turn: Turn
    text: str
    calls: tuple[CalledTool, ...]
    finish: Literal["stop", "length", "tool_calls"]
    stopped_by: str | None = None
    """The stop string that ended it, if any."""

    def as_message(self) -> ChatMessage:
        """The message that a program sends back when it continues the chat."""
        return ChatMessage("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class Answered:
    """All replies to one call."""

    role: str
    replies: Sequence[Reply]
    ignored: tuple[str, ...]
    """Requested settings that do not apply, because the run's config sets them for the policy."""

    @property
    def num_prompt_tokens(self) -> int:
        """Number of prompt tokens."""
        return self.replies[0].turn.num_prompt_tokens

    @property
    def num_reply_tokens(self) -> int:
        """Number of tokens in all replies."""
        return sum(reply.turn.num_tokens for reply in self.replies)
