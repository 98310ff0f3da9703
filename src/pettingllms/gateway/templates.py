"""Renders chats to prompt ids: the whole chat first, then only the messages that follow a reply.

A program sends the whole chat with every call. Rendering it again would re-tokenize the replies,
and the recorded log-probs would no longer match their tokens. So sampled ids are kept, and only the
text that follows the reply is rendered. This requires a template that preserves prefixes, which is
checked for every chat. The gateway reports templates that fail ordinary chats when it starts.
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
from pettingllms.gateway.tool_replies import complete_characters, format_of
from pettingllms.types import Ids, Image, Message, Renderer, Turn
from pettingllms.vision.processor import ImageProcessor

Probe = tuple[list[ChatMessage], list[ChatMessage], list[ToolSpec]]
"""A chat, the messages after the reply to it, and its tools."""
PROBE = "probe_x"
REPLY = "It is 4 o'clock."
NO_IDS = np.array([], dtype=np.int32)
PLACEHOLDERS = ChatMessage(
    "user", "One and this", images=(Placed(0, Image(b"")), Placed(8, Image(b"")))
)
"""Never decoded: only used to find where the template places images."""
MAX_TEXT_BYTES = 500_000
"""Size of a text to tokenize: converting the ids of a longer one would block the event loop."""
REPLY_WITH_REASONING = f"<think>\nIt was 3 before.\n</think>\n\n{REPLY}"


class ChatRenderer(Renderer, Protocol):
    """A renderer that exposes the text between messages and ids."""

    end: str
    """Text of the end-of-turn token; empty if there is no such token."""
    num_ids: int
    """Size of the vocabulary."""
    special: tuple[str, ...]
    """Spellings of the control tokens."""
    image_processor: ImageProcessor
    """Only for VLMs."""

    def chat_text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], opens: bool
    ) -> str:
        """Apply the chat template, with the generation prompt if it `opens` a reply. The text may
        contain marks that keep message content from becoming control tokens."""

    def text_ids(self, text: str) -> Ids:
        """Tokenize such a text, without special tokens."""

    def marked_text(self, ids: Ids, marks: Sequence[str]) -> str:
        """Decode a reply with the spellings of some of its control tokens."""

    def prompt_ids(self, text: str) -> Ids:
        """Tokenize a bare prompt, with the tokenizer's special tokens around it. Control tokens in
        its text are encoded as plain text."""

    def multimodal_ids(self, text: str, images: Sequence[Image]) -> Ids:
        """Only for VLMs: tokenize such a text, with all placeholder ids of its images. SamplerError
        if the text has a different number of images."""


class Template:
    """Renders chats with the chat template of one renderer."""

    def __init__(self, renderer: Renderer) -> None:
        """A renderer without `chat_text` only renders whole chats."""
        self._renderer = cast("ChatRenderer", renderer)
        self._has_text = hasattr(renderer, "chat_text")
        self._supports_images = hasattr(renderer, "multimodal_ids")
        self.call_format = format_of(getattr(renderer, "special", ()))
        """How the model writes tool calls with control tokens; None if they are plain text."""
        self.has_tools = self._has_text and self._shows_tools()
        """Whether the template renders tools."""
        self.image_problem = self._find_image_problem()
        """Why images are not supported; empty if they are."""
        self.fault = self._find_fault()
        """Why chats cannot be extended; empty if they can."""
        self.drops_reasoning = not self.fault and self._drops_reasoning()
        """Whether it removes reasoning from earlier replies. Chats with reasoning are then rendered
        as a whole."""

    def shown(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], schema: str | None
    ) -> tuple[list[ChatMessage], list[ToolSpec]]:
        """Chat and tools as input of the template. If it does not render tools, they are written
        into the text."""
        chat = list(messages) if schema is None else with_schema(messages, schema)
        return (chat, list(tools)) if self.has_tools else (folded(chat, tools), [])

    def whole(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Ids:
        """Prompt ids of a whole chat."""
        if not self._has_text:
            return self._renderer.render(as_messages(messages))
        return self._ids(self._text(messages, tools, True), images_in(messages))

    def ids(self, text: str) -> Ids:
        """Prompt ids of a bare prompt."""
        if not self._has_text:
            raise CallError(
                400, "the server of this role only accepts chats, no bare prompts", "prompt"
            )
        _check_size(text)
        return self._renderer.prompt_ids(text)

    def check_ids(self, ids: Ids) -> Ids:
        """Return prompt ids; reject ids outside the vocabulary, which may crash an engine."""
        if not self._has_text:
            raise CallError(
                400, "the server of this role only accepts chats, no bare prompts", "prompt"
            )
        if (largest := int(ids.max())) >= self._renderer.num_ids:
            size = self._renderer.num_ids
            raise CallError(
                400, f"token id {largest} is not in the model's vocabulary of {size:,}", "prompt"
            )
        return ids

    def decode(self, ids: Ids) -> str:
        """Decode the ids of a reply."""
        return self._renderer.decode(ids)

    def marked(self, turn: Turn) -> str:
        """The text of a reply with the control tokens of its tool calls."""
        text = turn.text
        if self.call_format is not None:
            text = self._renderer.marked_text(turn.response_ids, self.call_format.marks)
        return complete_characters(text)

    def added(
        self,
        before: Sequence[ChatMessage],
        reply: ChatMessage,
        after: Sequence[ChatMessage],
        tools: Sequence[ToolSpec],
        end: Ids | None,
    ) -> Ids | None:
        """Ids that follow a reply when the chat continues; None if the template would change
        earlier text. `end`: the end-of-turn token that the reply already has, if any."""
        if not self._has_text or self.fault:
            return None
        tail = self._tail(before, tools)
        closed = self._text([*before, reply], tools, False)
        longer = self._text([*before, reply, *after], tools, True)
        if tail is None or not longer.startswith(closed):
            return None
        if not closed.endswith(tail):
            if not self._ends_call(closed, end):
                return None
            tail = ""
        elif end is not None:
            tail = tail.removeprefix(self._renderer.end)
        return self._ids(tail + longer[len(closed) :], images_in(after))

    def _ends_call(self, closed: str, end: Ids | None) -> bool:
        """Whether the template ends a tool call with the token that ended the sampled one."""
        if end is None or self.call_format is None:
            return False
        spelled = self._renderer.marked_text(end, self.call_format.marks)
        return bool(spelled) and closed.endswith(spelled)

    def can_extend(self, reply_ids: Ids) -> bool:
        """Whether a prompt can contain a reply. It must not contain the placeholder id of images,
        which a policy may sample."""
        return not self._supports_images or self._renderer.image_processor.image_id not in reply_ids

    def prepare_images(self, images: Sequence[Image]) -> None:
        """Process images ahead of rendering, which is slow; ImageError if one is invalid."""
        for image in images:
            self._renderer.image_processor.num_tokens(image)

    def _ids(self, text: str, images: Sequence[Image]) -> Ids:
        _check_size(text)
        if not self._supports_images:
            return self._renderer.text_ids(text)
        return self._renderer.multimodal_ids(text, images)

    def _tail(self, before: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> str | None:
        """The text that the template adds after a reply, starting with the end-of-turn token."""
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
            return "only reads text"
        with suppress(SamplerError):
            ids = self._renderer.text_ids(self._text([PLACEHOLDERS], [], True))
            if np.count_nonzero(ids == self._renderer.image_processor.image_id) == len(
                PLACEHOLDERS.images
            ):
                return ""
        return "has a chat template that does not support images"

    def _find_fault(self) -> str:
        if not self._has_text:
            return "its server accepts whole chats, not token ids"
        num_rendered = 0
        for probe in self._probes():
            with suppress(SamplerError):  # some templates reject system messages
                if fault := self._fault_of(*probe):
                    return fault
                num_rendered += 1
        return "" if num_rendered else "it rejects ordinary chats"

    def _drops_reasoning(self) -> bool:
        user, more = ChatMessage("user", "What time is it?"), ChatMessage("user", "And then?")
        return (
            self.added([user], ChatMessage("assistant", REPLY_WITH_REASONING), [more], [], NO_IDS)
            is None
        )

    def _fault_of(
        self, before: list[ChatMessage], after: list[ChatMessage], tools: list[ToolSpec]
    ) -> str:
        reply = ChatMessage("assistant", REPLY)
        if self._tail(before, tools) is None:
            return "it renders an earlier reply differently from how it was sampled"
        closed = self._text([*before, reply], tools, False)
        longer = self._text([*before, reply, *after], tools, True)
        if not longer.startswith(closed):
            return "it changes earlier messages when a chat continues"
        opened = self._text(before, tools, True)
        replied = opened + REPLY + self._renderer.end
        parts = [opened, REPLY + self._renderer.end, longer[len(replied) :]]
        ids = [self._renderer.text_ids(part) for part in parts]
        if not np.array_equal(np.concatenate(ids), self._renderer.text_ids(longer)):
            return "its tokenizer merges the end of a reply with the text after it"
        return ""

    def _probes(self) -> list[Probe]:
        system, user = ChatMessage("system", "Be brief."), ChatMessage("user", "What time is it?")
        more = ChatMessage("user", "And then?")
        earlier = ChatMessage("assistant", "It was 3 o'clock.")
        probes: list[Probe] = [
            ([user], [more], []),
            ([system, user], [more], []),
            ([system, user, earlier, more], [more, earlier, more], []),
        ]
        if not self.image_problem:
            probes.append(([PLACEHOLDERS], [PLACEHOLDERS], []))
            probes.append(
                ([system, PLACEHOLDERS, earlier, PLACEHOLDERS], [PLACEHOLDERS, earlier, more], [])
            )
        if self.has_tools:
            call = ChatMessage("assistant", "", (CalledTool("call00001", PROBE, "{}"),))
            result = ChatMessage("tool", "4", answers="call00001", name=PROBE)
            probes.append(([system, user, call, result], [more], [ToolSpec(PROBE)]))
        return probes


def as_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The chat as messages for a record, with tool calls and results as text."""
    return tuple(
        Message("user" if m.speaker == "tool" else m.speaker, m.content, images_in([m]))
        for m in folded(messages, ())
    )


def _check_size(text: str) -> None:
    """Reject a prompt that would take too long to tokenize, for any context length."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        most = f"{MAX_TEXT_BYTES:,} bytes"
        raise CallError(400, f"the prompt has more than {most} of text")
