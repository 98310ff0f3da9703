"""Prompt text for tools: their descriptions, calls and results.

The formats follow the models' chat templates, so a model sees what it was trained on. A result is a
user message, as the Hermes and Qwen templates render it. Tool output is sanitized first, because it
may contain model-generated text with markup.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from pettingllms.config import EnvConfig
from pettingllms.envs.toolkit.answers import as_reply
from pettingllms.envs.toolkit.tool_calls import CLOSE, MISTRAL, OPEN, Tool, ToolCall
from pettingllms.types import Message, assistant, user

Style = Literal["hermes", "llama", "mistral"]
MARKS = re.compile(
    r"<\|[^|>\n]{0,40}\|>|\[/?(INST|TOOL_[A-Z]+|AVAILABLE_TOOLS|ARGS)\]"
    r"|</?(tool_\w+|answer|system|s|think)>",
    re.IGNORECASE,
)
"""Markup that a chat template or the reply parser could interpret."""
LONG_WORD = re.compile(r"\w{80,}")


class ToolConfig(EnvConfig):
    """Options of environments with tools."""

    tool_calls: Style = "hermes"
    """Format in which tools are described and calls are requested: `hermes` (also Qwen and
    SmolLM), `llama` or `mistral`. Replies may use any of them."""


def describe(tools: Sequence[Tool], style: Style = "hermes") -> str:
    """The part of the system prompt that lists the tools and how to call one."""
    listed = "\n".join(json.dumps(_schema(tool, style)) for tool in tools)
    if style == "mistral":
        form = f'{MISTRAL}[{{"name": NAME, "arguments": {{...}}}}]'
        return f"You may call these tools:\n{listed}\nTo call one, reply with {form}."
    if style == "llama":
        form = '{"name": NAME, "parameters": {...}}'
        return f"You may call these functions:\n{listed}\nTo call one, reply with {form} alone."
    form = f'{OPEN}\n{{"name": NAME, "arguments": {{...}}}}\n{CLOSE}'
    return (
        f"You may call these tools:\n<tools>\n{listed}\n</tools>\nTo call one, reply with\n{form}"
    )


def as_call(call: ToolCall, style: Style = "hermes") -> str:
    """A call in the format of a model family."""
    arguments = dict(call.arguments)
    if style == "llama":
        return json.dumps({"name": call.name, "parameters": arguments})
    body = json.dumps({"name": call.name, "arguments": arguments})
    return f"{MISTRAL}[{body}]" if style == "mistral" else f"{OPEN}\n{body}\n{CLOSE}"


def call_of(config: ToolConfig, call: ToolCall) -> str:
    """A call of a scripted player: without tags in a terse environment."""
    return as_call(call, "llama" if config.terse else config.tool_calls)


def search_for(config: ToolConfig, query: str) -> str:
    """A search call of a scripted player."""
    return call_of(config, ToolCall("search", (("query", query),)))


def call_or_answer(typed: str, terse: bool) -> str:
    """The reply that a person typed: a call, or else an answer."""
    return typed if typed.startswith("{") else as_reply(typed, terse)


def exchange(call: ToolCall, result: str, style: Style = "hermes") -> list[Message]:
    """A call and its result as a pair of messages."""
    cleaned = ToolCall(call.name, tuple((name, _clean(value)) for name, value in call.arguments))
    return [assistant(as_call(cleaned, style)), user(as_result(call, result, style))]


def as_result(call: ToolCall, result: str, style: Style = "hermes") -> str:
    """A tool result as message text."""
    if style == "mistral":
        return f"[TOOL_RESULTS]{json.dumps({'name': call.name, 'content': result})}[/TOOL_RESULTS]"
    if style == "llama":
        return json.dumps({"output": result})
    return f"<tool_response>\n{result}\n</tool_response>"


def shown(text: str, max_letters: int = 600) -> str:
    """Sanitized text of a tool or another role for a prompt: no control characters, no template
    markup, no endless words, limited length."""
    plain = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    plain = MARKS.sub("?", plain).replace("<|", "< |")
    plain = LONG_WORD.sub(lambda word: f"{word.group()[:20]}...", plain)
    return plain if len(plain) <= max_letters else f"{plain[:max_letters]}... (cut)"


def _clean(value: Any) -> Any:
    return shown(value) if isinstance(value, str) else value


def _schema(tool: Tool, style: Style) -> dict[str, Any]:
    properties = {
        parameter.name: {"type": parameter.kind, "description": parameter.about}
        for parameter in tool.parameters
    }
    required = [parameter.name for parameter in tool.parameters if parameter.required]
    function = {
        "name": tool.name,
        "description": tool.about,
        "parameters": {"type": "object", "properties": properties, "required": required},
    }
    return function if style == "llama" else {"type": "function", "function": function}
