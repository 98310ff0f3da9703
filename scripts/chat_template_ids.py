"""Renders fixed conversations to token ids with Transformers, vLLM and this package.

Used by compare_chat_templates.py. vLLM renders with the code of its API server, without an engine.
"""

import asyncio
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chat_template_page import Rendered

DAY = datetime(2024, 7, 26)
"""The day that templates write as today's date."""
Chat = list[dict[str, Any]]


@dataclass(frozen=True)
class Conversation:
    """A conversation in the format of OpenAI's API, except that tool arguments are objects."""

    about: str
    messages: Chat
    tools: list[dict[str, Any]] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the template; families whose template never reads them are left out."""
    opens: bool = True
    """Whether the prompt ends where a reply begins."""

    @property
    def is_text(self) -> bool:
        """Whether environments can have such a conversation: no tools."""
        return not self.tools

    def request(self) -> dict[str, Any]:
        """The body of a request, with tool arguments as text."""
        messages = copy.deepcopy(self.messages)
        for message in messages:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        return {"messages": messages} | ({"tools": self.tools} if self.tools else {})


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _called(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call = {"id": "call00001", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


SYSTEM, QUESTION = _said("system", "You are brief."), _said("user", "What is 12 + 30?")
ANSWER, MORE = _said("assistant", "It is 42."), _said("user", "And 42 - 2?")
ASK = _said("user", "How warm is it in Zürich?")
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"c": 21.5}'}
PROPERTIES = {"city": {"type": "string", "description": "A city."}, "days": {"type": "integer"}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["city"]}
WEATHER = {"name": "weather", "description": "Get the weather.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": WEATHER}]
BARE_TOOLS = [{"type": "function", "function": {"name": "now"}}]
CALL = _called("weather", city="Zürich", days=1)
SPELLED = (
    "Say <|im_end|><|im_start|>system <|eot_id|> <end_of_turn> </s>[INST] <|end|><|start|> "
    "<｜User｜> <|endoftext|> as text."
)
CONVERSATIONS = {
    "user": Conversation("one message of a user", [QUESTION]),
    "system": Conversation("a system message and a user's", [SYSTEM, QUESTION]),
    "turns": Conversation("two turns", [SYSTEM, QUESTION, ANSWER, MORE]),
    "reply": Conversation("ends with a reply", [SYSTEM, QUESTION, ANSWER], opens=False),
    "spaces": Conversation(
        "spaces, line breaks and other scripts around text",
        [_said("system", "  Brief.\n"), _said("user", "\n\n e\u0301 é 東京 🙂\t x  \n")],
    ),
    "reasoning": Conversation(
        "an earlier reply with reasoning",
        [QUESTION, _said("assistant", "<think>\n12 and 30.\n</think>\n\nIt is 42."), MORE],
    ),
    "no thinking": Conversation(
        "`enable_thinking = false`", [SYSTEM, QUESTION], kwargs={"enable_thinking": False}
    ),
    "tools": Conversation("a tool is offered", [SYSTEM, ASK], TOOLS),
    "bare tool": Conversation("a tool with a name alone", [SYSTEM, ASK], BARE_TOOLS),
    "tool result": Conversation("a tool call and its result", [SYSTEM, ASK, CALL, RESULT], TOOLS),
    "spelled": Conversation("the user spells control tokens", [_said("user", SPELLED)]),
}


@contextmanager
def fixed_date() -> Iterator[None]:
    """Templates write a fixed date as today's."""

    class Clock(datetime):
        @classmethod
        def now(cls, _zone: Any = None) -> "datetime":  # type: ignore[override]
            return DAY

    with (
        patch("transformers.utils.chat_template_utils.datetime", Clock),
        patch.dict(os.environ, VLLM_SYSTEM_START_DATE=DAY.strftime("%Y-%m-%d")),
    ):
        yield


def attempt(render: Callable[[], Any]) -> Rendered:
    """The ids, or the first line of an error."""
    try:
        found = render()
    except Exception as error:  # noqa: BLE001 - whatever a template or server raises is a result
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
    return None if found is None else [int(one) for one in found]


def reads(folder: Path, name: str) -> bool:
    """Whether the template of a folder reads an argument."""
    from pettingllms.policies.chat_template import read_template

    return name in read_template(folder)


class Family:
    """The tokenizer of one family, for Transformers and this package."""

    def __init__(self, folder: Path) -> None:
        from pettingllms.inference.chat import load_tokenizer

        self.folder = folder
        self._tokenizer = load_tokenizer(folder)

    def spell(self, ids: Sequence[int]) -> list[str]:
        """The text of each id, as a Python string."""
        return [repr(self._tokenizer.decode([one]))[1:-1] for one in ids]

    def rendered(self, conversation: Conversation) -> dict[str, Rendered]:
        """The ids of Transformers and of every way of this package that applies."""
        if not all(reads(self.folder, name) for name in conversation.kwargs):
            return dict.fromkeys(("transformers", *WAYS))
        ours = {
            name: attempt(partial(way, self.folder, conversation)) for name, way in WAYS.items()
        }
        return {"transformers": attempt(partial(self._by_template, conversation)), **ours}

    def _by_template(self, conversation: Conversation) -> Any:
        return self._tokenizer.apply_chat_template(
            copy.deepcopy(conversation.messages),
            tools=conversation.tools or None,
            add_generation_prompt=conversation.opens,
            return_dict=False,
            **conversation.kwargs,
        )


def environment(folder: Path, conversation: Conversation) -> Any:
    """The prompt of an environment."""
    if not (conversation.is_text and conversation.opens):
        return None
    return _renderer(folder, conversation).render(_messages(conversation.messages))


def gateway(folder: Path, conversation: Conversation) -> Any:
    """The prompt of a request to the gateway, which renders the whole chat."""
    from pettingllms.gateway.dialects.openai_chat import ChatRequest, read
    from pettingllms.gateway.templates import Template

    if not conversation.opens:
        return None
    template = Template(_renderer(folder, conversation))
    call = read(ChatRequest(**conversation.request()), {})
    return template.whole(*template.shown(call.messages, call.tools, None))


def continued(folder: Path, conversation: Conversation) -> Any:
    """The prompt of a request that continues a recorded reply: its ids are kept."""
    from pettingllms.gateway.dialects.openai_chat import ChatRequest, read
    from pettingllms.gateway.templates import Template

    roles = [message["role"] for message in conversation.messages]
    if conversation.tools or roles[-2:] != ["assistant", "user"]:
        return None
    renderer = _renderer(folder, conversation)
    template = Template(renderer)
    *before, reply, after = read(ChatRequest(**conversation.request()), {}).messages
    reply_ids = renderer.encode(reply.content)
    added = template.added(before, reply, [after], [], reply_ids[-1:])
    return None if added is None else [*template.whole(before, []), *reply_ids, *added]


def demonstration(folder: Path, conversation: Conversation) -> Any:
    """A prompt and the reply to it, as in training on demonstrations."""
    if conversation.opens:
        return None
    *before, reply = _messages(conversation.messages)
    renderer = _renderer(folder, conversation)
    return [*renderer.render(before), *renderer.encode(reply.content)]


WAYS: Mapping[str, Callable[[Path, Conversation], Any]] = {
    "environment": environment,
    "gateway": gateway,
    "continued": continued,
    "demonstration": demonstration,
}
"""How this package makes prompts."""


def _renderer(folder: Path, conversation: Conversation) -> Any:
    return _load(folder, json.dumps(conversation.kwargs))


@lru_cache(maxsize=2)
def _load(folder: Path, kwargs: str) -> Any:
    from pettingllms.inference.chat import ChatRenderer

    return ChatRenderer(folder, json.loads(kwargs))


def _messages(chat: Chat) -> list[Any]:
    from pettingllms.types import Message

    return [Message(message["role"], message["content"]) for message in chat]


class Vllm:
    """The renderer of vLLM's API server for one folder."""

    def __init__(self, folder: Path, tokenizer_mode: str = "auto") -> None:
        from vllm.config import ModelConfig, VllmConfig
        from vllm.renderers import renderer_from_config
        from vllm.renderers.online_renderer import OnlineRenderer

        model = ModelConfig(
            model=str(folder), tokenizer_mode=tokenizer_mode, dtype="float32", max_model_len=2048
        )
        options: Any = {"model_config": model}
        self._folder = folder
        self._online = OnlineRenderer(
            model_config=model,
            renderer=renderer_from_config(VllmConfig(**options)),
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            # Any parser makes the server accept tools; it reads replies only.
            tool_parser="openai" if model.hf_config.model_type == "gpt_oss" else "hermes",
        )

    def rendered(self, conversation: Conversation) -> Rendered:
        """The ids of a conversation."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        if not all(reads(self._folder, name) for name in conversation.kwargs):
            return None
        request = ChatCompletionRequest(
            **conversation.request(),
            model="model",
            add_generation_prompt=conversation.opens,
            chat_template_kwargs=conversation.kwargs or None,
        )

        def ids() -> Any:
            found: Any = asyncio.run(self._online.render_chat(request))
            if not isinstance(found, tuple):
                raise ValueError(found.error.message)  # noqa: TRY004 - an error as a value
            return found[1][0]["prompt_token_ids"]

        return attempt(ids)
