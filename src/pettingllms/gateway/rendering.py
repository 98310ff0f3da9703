"""Renders the prompts of calls.

Rendering takes time proportional to the chat, so it runs in a thread and does not depend on
concurrent calls.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pettingllms.errors import SamplerError
from pettingllms.gateway.calls import Call, CallError, Reply
from pettingllms.gateway.conversations import Chat, Conversations
from pettingllms.gateway.templates import Template, as_messages
from pettingllms.gateway.tool_prompts import call_schema
from pettingllms.types import Ids, Image, Message


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt and its metadata."""

    ids: Ids
    digest: bytes
    """Digest of role, ids and images."""
    extends: int | None
    """Number of the turn that the ids extend."""
    chat: Chat | None
    """None for a bare prompt."""
    messages: tuple[Message, ...]
    calling: str | None
    """JSON schema of a required tool call."""
    guide: str | None
    """JSON schema that the sampler enforces."""


class Prompts:
    """Renders the prompts of one episode."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = templates
        self._chats = {role: Conversations(template) for role, template in templates.items()}
        self._images: dict[Image, Image] = {}
        """All images so far, each stored once."""

    def make(self, call: Call, role: str, is_guided: bool) -> Prompt:
        """Render the prompt of a call. `is_guided`: the sampler enforces the call's schemas."""
        calling = call_schema(call)
        schema = None if is_guided else call.schema
        chat = Chat(call, schema) if call.text is None else None
        ids, extends = self._ids(call, role, chat, schema)
        images = "".join(image.digest for image in call.images).encode()
        digest = hashlib.sha256(role.encode() + b"\0" + ids.tobytes() + images).digest()
        guide = (calling or call.schema) if is_guided else None
        return Prompt(ids, digest, extends, chat, self._messages(call), calling, guide)

    def add(self, role: str, prompt: Prompt, reply: Reply, number: int) -> None:
        """Record a reply and its turn number, so that later chats can continue it."""
        if prompt.chat is not None:
            self._chats[role].add(prompt.chat, reply, number)

    def _ids(
        self, call: Call, role: str, chat: Chat | None, schema: str | None
    ) -> tuple[Ids, int | None]:
        template = self._templates[role]
        if call.prompt_ids is not None:
            return template.check_ids(call.prompt_ids), None
        try:
            if chat is None:
                return template.ids(call.text or ""), None
            return self._chats[role].prompt(call, chat, schema)
        except SamplerError as error:
            param = "messages" if call.text is None else "prompt"
            raise CallError(400, str(error), param) from error

    def _messages(self, call: Call) -> tuple[Message, ...]:
        """The prompt as readable messages for the record. Repeated images share one object."""
        if call.text is not None:
            return (Message("user", call.text),)
        return tuple(
            replace(message, parts=tuple(self._images.setdefault(i, i) for i in message.images))
            for message in as_messages(call.messages)
        )
