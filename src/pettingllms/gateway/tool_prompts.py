"""Writes tools and schemas into prompts for templates without tool support, and parses tool calls.

Prompts use the format of Hermes and Qwen, which most open models know. Tool calls are parsed by the
same code as in environments with tools, in the formats of all model families.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.tool_calls import CLOSE, MISTRAL, OPEN, PYTHON_TAG, calls_in
from pettingllms.gateway.calls import (
    Call,
    CalledTool,
    CallError,
    ChatMessage,
    Placed,
    ToolSpec,
)

RESULT_PREFIX = "<tool_response>\n"


def folded(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
    """A chat with tools written into the system message, and calls and results into the text."""
    chat = [_plain(message) for message in messages]
    return _with_system_text(chat, _described(tools)) if tools else chat


def with_schema(messages: Sequence[ChatMessage], schema: str) -> list[ChatMessage]:
    """The chat with the reply's schema in the system message."""
    if schema == "{}":
        return _with_system_text(list(messages), "Reply with a JSON object alone.")
    return _with_system_text(
        list(messages), f"Reply with JSON alone, which fits this JSON schema:\n{schema}"
    )


def calls_of(text: str, call: Call) -> tuple[str, tuple[CalledTool, ...]]:
    """Split a reply into text and tool calls. Invalid calls and calls of unknown tools remain text,
    for the program to handle."""
    if not call.tools:
        return text, ()
    try:
        found = calls_in(text)
    except BadReply:
        return text, ()
    known = {tool.name for tool in call.tools}
    if not found or any(one.name not in known for one in found):
        return text, ()
    called = tuple(
        CalledTool(_call_id(), one.name, json.dumps(dict(one.arguments))) for one in found
    )
    return _before_calls(text), called


def _call_id() -> str:
    """Nine letters and digits: Mistral's templates reject all other ids."""
    return secrets.token_hex(5)[:9]


def _before_calls(text: str) -> str:
    """The text before the tool calls, by the format of the calls."""
    for mark in (OPEN, MISTRAL):
        if mark in text:
            return text.partition(mark)[0].strip()
    is_whole = text.strip().startswith((PYTHON_TAG, "{", "[{"))
    return "" if is_whole else text.partition("```")[0].strip()


def complete_characters(text: str) -> str:
    """A reply without an incomplete UTF-8 character at its end; vLLM drops it too."""
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def call_schema(call: Call) -> str | None:
    """JSON schema of a required tool call; None if no call is required."""
    if call.must_call is None:
        return None
    wanted = [t for t in call.tools if call.must_call in ("any", t.name)]
    if not wanted:
        named = "a tool" if call.must_call == "any" else f"the tool '{call.must_call[:40]}'"
        raise CallError(400, f"{named} is required, but 'tools' does not contain it", "tool_choice")
    forms = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": tool.parameters or {}},
            "required": ["name", "arguments"],
        }
        for tool in wanted
    ]
    return json.dumps(forms[0] if len(forms) == 1 else {"anyOf": forms})


def _plain(message: ChatMessage) -> ChatMessage:
    if message.speaker == "tool":
        text = f"{RESULT_PREFIX}{message.content}\n</tool_response>"
        moved = [Placed(len(RESULT_PREFIX) + at, image) for at, image in message.images]
        return ChatMessage("user", text, images=tuple(moved))
    if not message.calls:
        return ChatMessage(message.speaker, message.content, images=message.images)
    calls = [
        f"{OPEN}\n{json.dumps({'name': call.name, 'arguments': call.values})}\n{CLOSE}"
        for call in message.calls
    ]
    text = "\n".join([*filter(None, [message.content]), *calls])
    return ChatMessage("assistant", text, images=message.images)


def _with_system_text(chat: list[ChatMessage], text: str) -> list[ChatMessage]:
    if chat and chat[0].speaker == "system":
        return [replace(chat[0], content=f"{chat[0].content}\n\n{text}"), *chat[1:]]
    return [ChatMessage("system", text), *chat]


def _described(tools: Sequence[ToolSpec]) -> str:
    listed = "\n".join(json.dumps(tool.as_json()) for tool in tools)
    form = f'{OPEN}\n{{"name": NAME, "arguments": {{...}}}}\n{CLOSE}'
    return (
        f"You may call these tools:\n<tools>\n{listed}\n</tools>\nTo call one, reply with\n{form}"
    )
