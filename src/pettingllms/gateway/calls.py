"""One call of a program to one of its roles, whatever dialect it came in, and the replies to it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pettingllms.types import Ids, Image, Turn

Speaker = Literal["system", "user", "assistant", "tool"]
MAX_REPLIES = 16
"""Replies to one call."""


class CallError(Exception):
    """A call that is not answered; becomes an answer with that status, in the caller's dialect."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


def read_text(text: str, constant: Callable[[str], Any] | None = None) -> Any:
    """What JSON says; ValueError if it is none, too deep, or holds half a sign, which is no text.
    `constant` is given NaN and its like."""
    try:
        found = json.loads(text, parse_constant=constant)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool that a model asked for, by the id under which its result comes back."""

    id: str
    name: str
    arguments: str
    """JSON of an object."""

    @property
    def values(self) -> Any:
        """The arguments, read; the text itself if it is no JSON."""
        try:
            return read_text(self.arguments)
        except ValueError:
            return self.arguments


class Placed(NamedTuple):
    """An image in a message's text."""

    at: int
    """Letters of the text that stand before it."""
    image: Image


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a chat, as programs send them."""

    speaker: Speaker
    content: str = ""
    calls: tuple[CalledTool, ...] = ()
    """Tools that this assistant message calls."""
    answers: str = ""
    """Id of the call that this tool message answers."""
    name: str = ""
    """The tool that it comes from, where the program says so."""
    images: tuple[Placed, ...] = ()
    """In the order in which they stand in the text."""

    def as_json(self) -> dict[str, Any]:
        """The message as chat templates read it: arguments are an object there."""
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
        """What makes two messages the same, however a program's library spaced its JSON."""
        calls = [[call.id, call.name, call.values] for call in self.calls]
        images = [[at, image.digest] for at, image in self.images]
        parts = [self.speaker, self.content, calls, self.answers, self.name, images]
        return json.dumps(parts, sort_keys=True)

    def _parts(self) -> str | list[dict[str, str]]:
        """Text alone as it is; else texts and the places of images, one behind the other."""
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
        """The tool as chat templates read it."""
        parameters = self.parameters or {"type": "object", "properties": {}}
        function = {"name": self.name, "description": self.about, "parameters": dict(parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a program asks for."""

    model: str
    messages: tuple[ChatMessage, ...] = ()
    text: str | None = None
    """A prompt without a chat; then there are no messages."""
    prompt_ids: Ids | None = None
    """The same as ids."""
    tools: tuple[ToolSpec, ...] = ()
    must_call: str | None = None
    """`any`, or the one tool that must be called."""
    schema: str | None = None
    """JSON schema that the reply should fit."""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    num_replies: int = 1
    headers: Mapping[str, str]
    """Of the request, in small letters, without those that hold keys."""
    num_bytes: int = 0
    """Size of the request's body."""

    @property
    def images(self) -> tuple[Image, ...]:
        """All that its messages show, in their order."""
        return images_in(self.messages)


def images_in(messages: Sequence[ChatMessage]) -> tuple[Image, ...]:
    """The images of a chat, in the order in which they are seen."""
    return tuple(placed.image for message in messages for placed in message.images)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as the program is given it; the turn is what is recorded."""

    id: str
    turn: Turn
    text: str
    calls: tuple[CalledTool, ...]
    finish: Literal["stop", "length", "tool_calls"]
    stopped_by: str | None = None
    """The text that ended it, if one did."""

    def as_message(self) -> ChatMessage:
        """What a program sends back when the chat goes on."""
        return ChatMessage("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class Answered:
    """All replies to one call."""

    role: str
    replies: Sequence[Reply]
    set_aside: tuple[str, ...]
    """What the program asked for and did not get, as its policy learns under settings of its
    own."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.replies[0].turn.num_prompt_tokens

    @property
    def num_reply_tokens(self) -> int:
        """Tokens of all replies."""
        return sum(reply.turn.num_tokens for reply in self.replies)
