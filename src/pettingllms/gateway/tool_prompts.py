"""Writes tools and schemas into prompts for templates without tool support.

Prompts use the format of Hermes and Qwen, which most open models know.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from pettingllms.envs.toolkit.tool_calls import CLOSE, OPEN
from pettingllms.gateway.calls import Call, CallError, ChatMessage, Placed, ToolSpec

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
