"""What a role is shown for a call. Making it takes time that grows with the chat, so it is done in
a thread, and depends on no other call that is under way.
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
    """A prompt, and what was found out while it was made."""

    ids: Ids
    digest: bytes
    """Of role, ids and images."""
    extends: int | None
    """The turn that the ids go on from."""
    chat: Chat | None
    """None for a bare prompt."""
    messages: tuple[Message, ...]
    calling: str | None
    """JSON schema of the call of a tool that was demanded."""
    guide: str | None
    """JSON schema that the reply is held to."""


class Prompts:
    """Makes the prompts of one episode."""

    def __init__(self, templates: Mapping[str, Template]) -> None:
        self._templates = templates
        self._chats = {role: Conversations(template) for role, template in templates.items()}
        self._seen: dict[Image, Image] = {}
        """The images that were shown."""

    def make(self, call: Call, role: str, narrows: bool) -> Prompt:
        """The prompt of a call; `narrows` if its schemas narrow what the role can say."""
        calling = call_schema(call)
        schema = None if narrows else call.schema
        chat = Chat(call, schema) if call.text is None else None
        ids, extends = self._ids(call, role, chat, schema)
        seen = "".join(image.digest for image in call.images).encode()
        digest = hashlib.sha256(role.encode() + b"\0" + ids.tobytes() + seen).digest()
        guide = (calling or call.schema) if narrows else None
        return Prompt(ids, digest, extends, chat, self._view(call), calling, guide)

    def add(self, role: str, prompt: Prompt, reply: Reply, number: int) -> None:
        """Let later chats go on from a reply, the turn of that number."""
        if prompt.chat is not None:
            self._chats[role].add(prompt.chat, reply, number)

    def _ids(
        self, call: Call, role: str, chat: Chat | None, schema: str | None
    ) -> tuple[Ids, int | None]:
        template = self._templates[role]
        if call.prompt_ids is not None:
            return template.known(call.prompt_ids), None
        try:
            if chat is None:
                return template.ids(call.text or ""), None
            return self._chats[role].prompt(call, chat, schema)
        except SamplerError as error:
            param = "messages" if call.text is None else "prompt"
            raise CallError(400, str(error), param) from error

    def _view(self, call: Call) -> tuple[Message, ...]:
        """What a record shows of the prompt; its ids are the truth. An image that is sent with
        every call is held once."""
        if call.text is not None:
            return (Message("user", call.text),)
        return tuple(
            replace(message, parts=tuple(self._seen.setdefault(i, i) for i in message.images))
            for message in as_messages(call.messages)
        )
