"""Which recorded reply a chat goes on from: one role's conversations in one episode.

A chat that begins with what an earlier call was shown, and then with what it was answered, message
for message, goes on from that call's ids. Whatever a program changed before that point, or cut from
it, makes it another chat: it is rendered whole, and begins a new segment.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pettingllms.gateway.calls import Call, ChatMessage, Reply
from pettingllms.gateway.templates import Template
from pettingllms.types import Ids


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply that a chat may go on from."""

    number: int
    """Of its turn in the episode."""
    ids: Ids
    """What the model saw, then what it wrote."""
    ended: bool
    """Whether the last of them ends the reply."""


class Conversations:
    """What one role has said, by the chats in which it did."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._spoken: dict[bytes, Spoken] = {}

    def prompt(self, call: Call, schema: str | None) -> tuple[Ids, int | None]:
        """The ids that a call is shown, and the number of the turn that they go on from."""
        messages = call.messages
        chat, tools = self._template.shown(messages, call.tools, schema)
        for length in _replies_in(messages):
            spoken = self._spoken.get(digest(call, messages[:length], schema))
            if spoken is None:
                continue
            before, reply, after = chat_parts(chat, len(chat) - len(messages) + length)
            added = self._template.added(before, reply, after, tools, spoken.ended)
            if added is not None:
                return np.concatenate([spoken.ids, added]), spoken.number
        return self._template.whole(chat, tools), None

    def add(self, call: Call, schema: str | None, reply: Reply, number: int) -> None:
        """Let later chats go on from a reply that the program is given whole."""
        turn = reply.turn
        if not self._template.can_go_on(turn.response_ids):
            return
        key = digest(call, [*call.messages, reply.as_message()], schema)
        ids = np.concatenate([turn.prompt_ids, turn.response_ids])
        self._spoken[key] = Spoken(number, ids, turn.finish == "stop")


def chat_parts(
    chat: Sequence[ChatMessage], length: int
) -> tuple[Sequence[ChatMessage], ChatMessage, Sequence[ChatMessage]]:
    """A chat before the last of its first messages, that message, and what follows."""
    return chat[: length - 1], chat[length - 1], chat[length:]


def digest(call: Call, messages: Sequence[ChatMessage], schema: str | None) -> bytes:
    """A short name for a chat with its tools."""
    parts = [str(schema), *(str(tool.as_json()) for tool in call.tools)]
    parts += [message.key() for message in messages]
    return hashlib.sha256("\x1f".join(parts).encode()).digest()


def _replies_in(messages: Sequence[ChatMessage]) -> Iterator[int]:
    """Lengths of the beginnings that end with a reply, longest first."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].speaker == "assistant":
            yield at + 1
