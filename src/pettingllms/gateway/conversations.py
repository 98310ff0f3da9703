"""Which recorded reply a chat goes on from: one role's conversations in one episode.

A chat that begins with what an earlier call was shown, and then with what it was answered, message
for message, goes on from that call's ids. Whatever a program changed before that point, or cut from
it, makes it another chat: it is rendered whole, and begins a new segment.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pettingllms.gateway.calls import Call, ChatMessage, Reply
from pettingllms.gateway.templates import Template
from pettingllms.types import Ids

MAX_TRIED = 8
"""Recorded replies that a chat is tried to go on from, the latest first. Each try renders the chat
four times; a chat that fits none of these is rendered whole."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply that a chat may go on from."""

    number: int
    """Of its turn in the episode."""
    ids: Ids
    """What the model saw, then what it wrote."""
    ended: bool
    """Whether the last of them ends the reply."""


class Chat:
    """A chat with its tools by its digest, and by those of its beginnings that end with a reply."""

    def __init__(self, call: Call, schema: str | None) -> None:
        head = [str(schema), *(str(tool.as_json()) for tool in call.tools)]
        self._digest: Any = hashlib.sha256("\x1f".join(head).encode())
        self.replied: list[tuple[int, bytes]] = []
        """How many messages each such beginning has, and its digest; the shortest is first."""
        for number, message in enumerate(call.messages, start=1):
            self._digest.update(_part(message))
            if message.speaker == "assistant":
                self.replied.append((number, self._digest.digest()))

    def with_reply(self, reply: ChatMessage) -> bytes:
        """The digest of the whole chat and a reply to it."""
        longer = self._digest.copy()
        longer.update(_part(reply))
        found: bytes = longer.digest()
        return found


class Conversations:
    """What one role has said, by the chats in which it did."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._spoken: dict[bytes, Spoken] = {}

    def prompt(self, call: Call, beginnings: Chat, schema: str | None) -> tuple[Ids, int | None]:
        """The ids that a call is shown, and the number of the turn that they go on from."""
        messages = call.messages
        chat, tools = self._template.shown(messages, call.tools, schema)
        known = [(n, self._spoken[key]) for n, key in beginnings.replied if key in self._spoken]
        for length, spoken in known[: -MAX_TRIED - 1 : -1]:  # the longest first
            before, reply, after = chat_parts(chat, len(chat) - len(messages) + length)
            added = self._template.added(before, reply, after, tools, spoken.ended)
            if added is not None:
                return np.concatenate([spoken.ids, added]), spoken.number
        return self._template.whole(chat, tools), None

    def add(self, chat: Chat, reply: Reply, number: int) -> None:
        """Let later chats go on from a reply that the program is given whole."""
        turn = reply.turn
        if not self._template.can_go_on(turn.response_ids):
            return
        key = chat.with_reply(reply.as_message())
        ids = np.concatenate([turn.prompt_ids, turn.response_ids])
        self._spoken[key] = Spoken(number, ids, turn.finish == "stop")


def chat_parts(
    chat: Sequence[ChatMessage], length: int
) -> tuple[Sequence[ChatMessage], ChatMessage, Sequence[ChatMessage]]:
    """A chat before the last of its first messages, that message, and what follows."""
    return chat[: length - 1], chat[length - 1], chat[length:]


def _part(message: ChatMessage) -> bytes:
    return b"\x1f" + message.key().encode()
