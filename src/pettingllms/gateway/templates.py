"""Chats as the ids that a model sees: the first time whole, then by what was added.

A program sends the whole chat with every call. Rendering it again would tokenise again what the
model wrote, and one token in another place would make the log-probs those of another reply. So what
was sampled stays as it was, and only what the program added is rendered: the text that the template
puts behind the reply. That is sound where a template preserves prefixes, and this is looked at in
every single chat. A template that fails a few ordinary ones is named when the gateway starts.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import numpy as np

from pettingllms.errors import SamplerError
from pettingllms.gateway.calls import (
    CalledTool,
    CallError,
    ChatMessage,
    Placed,
    ToolSpec,
    images_in,
)
from pettingllms.gateway.tool_prompts import folded, with_schema
from pettingllms.types import Ids, Image, Message, Renderer
from pettingllms.vision.processor import ImageProcessor

Probe = tuple[list[ChatMessage], list[ChatMessage], list[ToolSpec]]
"""A chat, what follows the reply to it, and its tools."""
PROBE = "probe_x"
REPLY = "It is 4 o'clock."
NO_IMAGES = ChatMessage(
    "user", "One and this", images=(Placed(0, Image(b"")), Placed(8, Image(b"")))
)
"""Looked at by no model: what counts is where the template puts images."""
MAX_TEXT_BYTES = 500_000
"""Of a text that is tokenized: the ids of a longer one would block the event loop."""
THOUGHT = f"<think>\nIt was 3 before.\n</think>\n\n{REPLY}"


class ChatRenderer(Renderer, Protocol):
    """A renderer that shows the text between messages and ids."""

    end: str
    """Text of the token that ends a reply; empty if none does."""
    num_ids: int
    """Ids that it knows, from 0."""
    image_processor: ImageProcessor
    """Where its model sees."""

    def chat_text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], opens: bool
    ) -> str:
        """A chat by the model's template, up to where a reply begins if it `opens` one. It may hold
        marks that keep what messages say from becoming control tokens."""

    def text_ids(self, text: str) -> Ids:
        """The ids of such a text, nothing added."""

    def prompt_ids(self, text: str) -> Ids:
        """The ids of a prompt that no template made, with what the tokenizer puts around one. It is
        text: control tokens that it spells are spelled."""

    def multimodal_ids(self, text: str, images: Sequence[Image]) -> Ids:
        """Where its model sees: the ids of such a text, with all the places of the images that it
        shows; SamplerError if it shows another number of them."""


class Template:
    """How one renderer's chats are shown to its model."""

    def __init__(self, renderer: Renderer) -> None:
        """A renderer without `chat_text` renders whole chats alone."""
        self._renderer = cast("ChatRenderer", renderer)
        self._has_text = hasattr(renderer, "chat_text")
        self._supports_images = hasattr(renderer, "multimodal_ids")
        self.has_tools = self._has_text and self._shows_tools()
        """Whether the template itself has a place for tools."""
        self.image_problem = self._find_image_problem()
        """Why no image can be shown; empty if one can."""
        self.fault = self._find_fault()
        """Why chats cannot be continued; empty if they can."""
        self.drops_thoughts = not self.fault and self._drops_thoughts()
        """Whether it takes thoughts out of earlier replies; a chat that has some is rendered
        whole."""

    def shown(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], schema: str | None
    ) -> tuple[list[ChatMessage], list[ToolSpec]]:
        """The chat and the tools as the template is given them: where it has no place for tools,
        they stand in the text."""
        chat = list(messages) if schema is None else with_schema(messages, schema)
        return (chat, list(tools)) if self.has_tools else (folded(chat, tools), [])

    def whole(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Ids:
        """Ids of a chat from its beginning."""
        if not self._has_text:
            return self._renderer.render(as_messages(messages))
        return self._ids(self._text(messages, tools, True), images_in(messages))

    def ids(self, text: str) -> Ids:
        """Ids of a prompt that is no chat."""
        if not self._has_text:
            raise CallError(400, "this role's server takes chats alone, no bare prompts", "prompt")
        _check_size(text)
        return self._renderer.prompt_ids(text)

    def known(self, ids: Ids) -> Ids:
        """The same ids of a prompt; an engine that meets one its model does not have may die."""
        if not self._has_text:
            raise CallError(400, "this role's server takes chats alone, no bare prompts", "prompt")
        if (largest := int(ids.max())) >= self._renderer.num_ids:
            known = self._renderer.num_ids
            raise CallError(400, f"the id {largest} is none of the model's {known:,}", "prompt")
        return ids

    def decode(self, ids: Ids) -> str:
        """The text of a reply."""
        return self._renderer.decode(ids)

    def added(
        self,
        before: Sequence[ChatMessage],
        reply: ChatMessage,
        after: Sequence[ChatMessage],
        tools: Sequence[ToolSpec],
        ended: bool,
    ) -> Ids | None:
        """Ids of what stands behind a reply once the chat goes on; None if this template would
        change what stands before. `ended` says whether the reply has its last token already."""
        if not self._has_text or self.fault:
            return None
        tail = self._tail(before, tools)
        closed = self._text([*before, reply], tools, False)
        longer = self._text([*before, reply, *after], tools, True)
        if tail is None or not longer.startswith(closed):
            return None
        if ended:
            tail = tail.removeprefix(self._renderer.end)
        return self._ids(tail + longer[len(closed) :], images_in(after))

    def can_go_on(self, reply_ids: Ids) -> bool:
        """Whether a reply can stand in a prompt as it is: a policy may write the id that stands for
        a piece of an image, and there nobody could tell it from a place."""
        return not self._supports_images or self._renderer.image_processor.image_id not in reply_ids

    def look(self, images: Sequence[Image]) -> None:
        """Make ready what is seen of images, which takes its time; ImageError if nobody can."""
        for image in images:
            self._renderer.image_processor.num_tokens(image)

    def _ids(self, text: str, images: Sequence[Image]) -> Ids:
        _check_size(text)
        if not self._supports_images:
            return self._renderer.text_ids(text)
        return self._renderer.multimodal_ids(text, images)

    def _tail(self, before: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> str | None:
        """What the template puts behind a reply, beginning with the end of it."""
        opened = self._text(before, tools, True) + REPLY
        closed = self._text([*before, ChatMessage("assistant", REPLY)], tools, False)
        tail = closed[len(opened) :]
        return tail if closed.startswith(opened) and tail.startswith(self._renderer.end) else None

    def _text(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], opens: bool) -> str:
        chat = [message.as_json() for message in messages]
        return self._renderer.chat_text(chat, [tool.as_json() for tool in tools], opens)

    def _shows_tools(self) -> bool:
        return PROBE in self._text([ChatMessage("user", "hello")], [ToolSpec(PROBE)], True)

    def _find_image_problem(self) -> str:
        if not self._supports_images:
            return "reads text alone"
        with suppress(SamplerError):
            ids = self._renderer.text_ids(self._text([NO_IMAGES], [], True))
            if np.count_nonzero(ids == self._renderer.image_processor.image_id) == len(
                NO_IMAGES.images
            ):
                return ""
        return "has a chat template with no place for images"

    def _find_fault(self) -> str:
        if not self._has_text:
            return "its server is given whole chats, not ids"
        num_read = 0
        for probe in self._probes():
            with suppress(SamplerError):  # some templates have no place for a system's message
                if fault := self._fault_of(*probe):
                    return fault
                num_read += 1
        return "" if num_read else "it refuses ordinary chats"

    def _drops_thoughts(self) -> bool:
        user, more = ChatMessage("user", "What time is it?"), ChatMessage("user", "And then?")
        return self.added([user], ChatMessage("assistant", THOUGHT), [more], [], True) is None

    def _fault_of(
        self, before: list[ChatMessage], after: list[ChatMessage], tools: list[ToolSpec]
    ) -> str:
        spoken = ChatMessage("assistant", REPLY)
        if self._tail(before, tools) is None:
            return "it writes an earlier reply in another way than the reply was written"
        closed = self._text([*before, spoken], tools, False)
        longer = self._text([*before, spoken, *after], tools, True)
        if not longer.startswith(closed):
            return "it changes what stands before once a chat goes on"
        opened = self._text(before, tools, True)
        replied = opened + REPLY + self._renderer.end
        parts = [opened, REPLY + self._renderer.end, longer[len(replied) :]]
        ids = [self._renderer.text_ids(part) for part in parts]
        if not np.array_equal(np.concatenate(ids), self._renderer.text_ids(longer)):
            return "its tokenizer joins what a reply ends with and what follows it"
        return ""

    def _probes(self) -> list[Probe]:
        system, user = ChatMessage("system", "Be brief."), ChatMessage("user", "What time is it?")
        more = ChatMessage("user", "And then?")
        spoken = ChatMessage("assistant", "It was 3 o'clock.")
        probes: list[Probe] = [
            ([user], [more], []),
            ([system, user], [more], []),
            ([system, user, spoken, more], [more, spoken, more], []),
        ]
        if not self.image_problem:
            probes.append(([NO_IMAGES], [NO_IMAGES], []))
            probes.append(([system, NO_IMAGES, spoken, NO_IMAGES], [NO_IMAGES, spoken, more], []))
        if self.has_tools:
            asked = ChatMessage("assistant", "", (CalledTool("call00001", PROBE, "{}"),))
            result = ChatMessage("tool", "4", answers="call00001", name=PROBE)
            probes.append(([system, user, asked, result], [more], [ToolSpec(PROBE)]))
        return probes


def as_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The chat as a record shows it, tool calls and results written out."""
    return tuple(
        Message("user" if m.speaker == "tool" else m.speaker, m.content, images_in([m]))
        for m in folded(messages, ())
    )


def _check_size(text: str) -> None:
    """Refuse a prompt that takes long to tokenize, whatever the length of the model's context."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        most = f"{MAX_TEXT_BYTES:,} bytes"
        raise CallError(400, f"the prompt has more than {most} of text to be tokenized")
