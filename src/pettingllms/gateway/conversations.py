"""Finds the recorded reply that a chat continues, per role and episode.

A chat that starts with the exact messages of an earlier call and its reply extends the token ids of
that call. If the program edited or truncated the history, the whole chat is rendered again and
starts a new segment.
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
"""Recorded replies to try as the prefix of a chat, latest first. Each try renders the chat four
times. If none fits, the whole chat is rendered."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """A reply that a chat may continue."""

    number: int
    """Number of its turn in the episode."""
    ids: Ids
    """Prompt and response ids."""
    ended: bool
    """Whether the last id is the end-of-turn token."""


class Chat:
    """Digests of a chat with its tools, and of its prefixes that end with a reply."""

    def __init__(self, call: Call, schema: str | None) -> None:
        head = [str(schema), *(str(tool.as_json()) for tool in call.tools)]
        self._digest: Any = hashlib.sha256("\x1f".join(head).encode())
        self.replied: list[tuple[int, bytes]] = []
        """Number of messages and digest of each such prefix, shortest first."""
        for number, message in enumerate(call.messages, start=1):
            self._digest.update(_message_bytes(message))
            if message.speaker == "assistant":
                self.replied.append((number, self._digest.digest()))

    def with_reply(self, reply: ChatMessage) -> bytes:
        """The digest of the chat followed by a reply."""
        longer = self._digest.copy()
        longer.update(_message_bytes(reply))
        found: bytes = longer.digest()
        return found


class Conversations:
    """The recorded replies of one role, by the digest of their chats."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._replies: dict[bytes, RecordedReply] = {}

    def prompt(self, call: Call, digests: Chat, schema: str | None) -> tuple[Ids, int | None]:
        """The prompt ids of a call, and the number of the turn that they extend."""
        messages = call.messages
        chat, tools = self._template.shown(messages, call.tools, schema)
        known = [(n, self._replies[key]) for n, key in digests.replied if key in self._replies]
        for length, recorded in known[: -MAX_TRIED - 1 : -1]:  # longest first
            before, reply, after = chat_parts(chat, len(chat) - len(messages) + length)
            end = recorded.ids[-1:] if recorded.ended else None
            added = self._template.added(before, reply, after, tools, end)
            if added is not None:
                return np.concatenate([recorded.ids, added]), recorded.number
        return self._template.whole(chat, tools), None

    def add(self, chat: Chat, reply: Reply, number: int) -> None:
        """Record a complete reply, so that later chats can continue it."""
        turn = reply.turn
        if not self._template.can_extend(turn.response_ids):
            return
        key = chat.with_reply(reply.as_message())
        ids = np.concatenate([turn.prompt_ids, turn.response_ids])
        self._replies[key] = RecordedReply(number, ids, turn.finish == "stop")


def chat_parts(
    chat: Sequence[ChatMessage], length: int
) -> tuple[Sequence[ChatMessage], ChatMessage, Sequence[ChatMessage]]:
    """Split a chat into the messages before number `length`, that message, and the rest."""
    return chat[: length - 1], chat[length - 1], chat[length:]


def _message_bytes(message: ChatMessage) -> bytes:
    return b"\x1f" + message.key().encode()
