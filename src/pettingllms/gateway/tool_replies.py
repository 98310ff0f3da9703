"""Splits replies into text and tool calls.

Most formats are text, and environments with tools read them with the same code. GPT-OSS, Gemma and
recent Mistral models write calls between control tokens, which decoding drops. For these, the reply
is decoded with the control tokens of its family, and only those that the model sampled delimit a
call. Malformed calls and calls of unknown tools remain text, for the program to handle.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.tool_calls import (
    FUNCTION_TAG,
    MAX_LETTERS,
    MISTRAL,
    OPEN,
    PYTHON_TAG,
    ToolCall,
    calls_in,
    object_in,
)
from pettingllms.gateway.calls import Call, CalledTool, ToolSpec

THINK, END_THINK = "<think>", "</think>"
RECIPIENT = re.compile(r"\bto=functions\.([\w.-]+)")
GEMMA_CALL = re.compile(r"<\|tool_call>call:([\w.:-]+)(\{.*?\})<tool_call\|>", re.DOTALL)
GEMMA_THOUGHT = re.compile(r"<\|channel>.*?(?:<channel\|>|$)", re.DOTALL)
GEMMA_END = ("<|tool_response>", "<turn|>", "<eos>")
QUOTE = '<|"|>'
BARE_KEY = re.compile(r"([{,]\s*)([\w.$-]+)(\s*:)")
TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class Parts(NamedTuple):
    """The text of a reply beside its calls, and the calls."""

    text: str
    calls: Sequence[ToolCall]


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a family writes calls with control tokens."""

    needs: str
    """The control token that only this family has."""
    marks: tuple[str, ...]
    """Control tokens to keep when a reply is decoded."""
    parts: Callable[[str], Parts]
    """Splits such a text; BadReply if a call is malformed."""


def reply_parts(
    text: str, marked: str, form: CallFormat | None, call: Call
) -> tuple[str, tuple[CalledTool, ...]]:
    """Split a reply into text and tool calls. `marked`: the text with the format's marks."""
    if form is None or not any(mark in marked for mark in form.marks):
        return calls_of(text, call)
    try:
        found = form.parts(marked)
    except BadReply:
        return text, ()
    if not found.calls:
        return found.text, ()
    called = _known(found.calls, call)
    return (found.text, called) if called else (text, ())


def calls_of(text: str, call: Call) -> tuple[str, tuple[CalledTool, ...]]:
    """Split a reply without control tokens. Calls that reasoning drafts do not count."""
    if not call.tools:
        return text, ()
    thought, rest = _after_reasoning(text)
    try:
        found = calls_in(rest)
    except BadReply:
        return text, ()
    if FUNCTION_TAG in rest:
        found = tuple(_typed(one, call.tools) for one in found)
    called = _known(found, call)
    return ((thought + _before_calls(rest)).strip(), called) if called else (text, ())


def complete_characters(text: str) -> str:
    """A reply without an incomplete UTF-8 character at its end; vLLM drops it too."""
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def format_of(special: Iterable[str]) -> CallFormat | None:
    """The format of a tokenizer with these control tokens; None if its calls are plain text."""
    known = set(special)
    return next((form for form in FORMATS if form.needs in known), None)


def _known(found: Sequence[ToolCall], call: Call) -> tuple[CalledTool, ...]:
    """The calls with ids; none if a tool is unknown."""
    names = {tool.name for tool in call.tools}
    if any(one.name not in names for one in found):
        return ()
    return tuple(CalledTool(_call_id(), one.name, json.dumps(dict(one.arguments))) for one in found)


def _call_id() -> str:
    """Nine letters and digits: Mistral's templates reject all other ids."""
    return secrets.token_hex(5)[:9]


def _after_reasoning(text: str) -> tuple[str, str]:
    """Split a reply after its reasoning. The prompt may have opened it."""
    before, tag, rest = text.partition(END_THINK)
    is_reasoning = tag and (before.lstrip().startswith(THINK) or THINK not in before)
    return (before + tag, rest) if is_reasoning else ("", text)


def _before_calls(text: str) -> str:
    """The text before the tool calls, by the format of the calls."""
    for mark in (OPEN, MISTRAL):
        if mark in text:
            return text.partition(mark)[0].strip()
    is_whole = text.strip().startswith((PYTHON_TAG, "{", "[{"))
    return "" if is_whole else text.partition("```")[0].strip()


def _typed(call: ToolCall, tools: Sequence[ToolSpec]) -> ToolCall:
    """The call with arguments of the types in the tool's schema: XML has text alone."""
    schema = next((tool.parameters or {} for tool in tools if tool.name == call.name), {})
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    pairs = [(name, _value(value, known.get(name))) for name, value in call.arguments]
    return replace(call, arguments=tuple(pairs))


def _value(text: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    wanted = [one for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str)]
    if not isinstance(text, str) or not set(wanted) & TYPES.keys():
        return text
    try:
        parsed = object_in(f'{{"value": {text}}}', "in a parameter")
    except BadReply:
        return text
    if len(parsed) > 1:  # such as `5, "x": 6`
        return text
    found = parsed["value"]
    fits = any(
        isinstance(found, TYPES.get(one, ())) and (one == "boolean" or not isinstance(found, bool))
        for one in wanted
    )
    return found if fits else text


def _check_length(text: str) -> None:
    if len(text) > MAX_LETTERS:
        raise BadReply(f"the reply has {len(text)} letters; with a call it has {MAX_LETTERS}")


def _harmony(text: str) -> Parts:
    """GPT-OSS: messages with a channel and, for calls, a recipient. Analysis is left out."""
    if "<|message|>" not in text:
        raise BadReply("a reply without a channel")
    said, calls = [], []
    for message in text.split("<|start|>"):
        header, is_open, body = message.partition("<|message|>")
        body = re.split(r"<\|(?:end|return|call)\|>", body, maxsplit=1)[0]
        if recipient := RECIPIENT.search(header):
            _check_length(body)
            arguments = object_in(body, "in the message to a tool")
            calls.append(ToolCall(recipient.group(1), tuple(arguments.items())))
        elif is_open and "<|channel|>analysis" not in header:
            said.append(body)
    return Parts("\n".join(said).strip(), calls)


def _gemma(text: str) -> Parts:
    """Gemma 4: `<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`. Thoughts are left out."""
    rest = GEMMA_THOUGHT.sub("", text)
    for end in GEMMA_END:
        rest = rest.removesuffix(end)
    if "<|tool_call>" in rest:
        _check_length(rest)
    said = GEMMA_CALL.sub("", rest)
    if "<|tool_call>" in said or "<tool_call|>" in said:
        raise BadReply("a tool call that is not call:NAME{...}")
    calls = [
        ToolCall(name, tuple(object_in(_gemma_json(body), "in the tool call").items()))
        for name, body in GEMMA_CALL.findall(rest)
    ]
    return Parts(said.replace(QUOTE, '"').strip(), calls)


def _gemma_json(text: str) -> str:
    """Arguments as JSON: keys are bare, and a control token quotes strings."""
    parts = text.split(QUOTE)
    for at in range(0, len(parts), 2):
        parts[at] = BARE_KEY.sub(r'\1"\2"\3', parts[at])
    parts[1::2] = [json.dumps(part) for part in parts[1::2]]
    return "".join(parts)


def _by_text(text: str) -> Parts:
    """Mistral and Llama: the text has the marks, or none."""
    said = text.removesuffix("</s>")
    found = calls_in(said)
    return Parts(_before_calls(said) if found else said, found)


FORMATS = (
    CallFormat(
        "<|channel|>",
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"),
        _harmony,
    ),
    CallFormat(
        "<|tool_call>",
        ("<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", QUOTE, *GEMMA_END),
        _gemma,
    ),
    CallFormat(MISTRAL, (MISTRAL, "[ARGS]", "[CALL_ID]"), _by_text),
    CallFormat(PYTHON_TAG, (PYTHON_TAG,), _by_text),
)
"""Formats with control tokens. Calls of other families are plain text."""
