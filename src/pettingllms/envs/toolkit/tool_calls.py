"""Parse tool calls from reply text, in the formats of current chat templates.

Each model family was trained on one format, and RL should not start by teaching another:

- Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or Qwen-Coder's
  `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`;
- Llama: the whole reply is `{"name": ..., "parameters": {...}}`;
- Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, or `[TOOL_CALLS]NAME[ARGS]{...}` per
  call;
- any model: a fenced block of `json` with such an object, or of a tool's language.

Every format is accepted everywhere. Malformed calls raise BadReply with a reason for the role to
read. A reply that contains an answer makes no calls, whatever text surrounds the answer. The parser
reads only JSON and executes nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pettingllms.envs.toolkit.answers import OPEN as ANSWER
from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.fences import blocks_in
from pettingllms.errors import nearest

Value = str | int | float | bool | None
Kind = Literal["string", "integer", "number", "boolean"]
MAX_LETTERS = 8000
"""Maximum length of a reply with a tool call."""
OPEN, CLOSE = "<tool_call>", "</tool_call>"
MISTRAL, PYTHON_TAG = "[TOOL_CALLS]", "<|python_tag|>"
TAGGED = re.compile(re.escape(OPEN) + r"(.*?)" + re.escape(CLOSE), re.DOTALL)
FUNCTION_TAG = "<function="
FUNCTION = re.compile(r"<function=([^<>\s]+)>(.*)</function>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^<>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?(?={)")
CALL_FENCES = ("json", "tool_call", "tool")
DECODER = json.JSONDecoder
KINDS: Mapping[Kind, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool."""

    name: str
    about: str
    kind: Kind = "string"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a role may call."""

    name: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    fence: str = ""
    """Language of a fenced block that is a call of this tool, with the block as its only
    argument."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed call. Its tool may not exist."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.arguments)[name]


@dataclass(frozen=True, slots=True)
class Look:
    """A call that was made, and its result."""

    call: ToolCall
    result: str


def calls_in(reply: str, tools: Sequence[Tool] = ()) -> tuple[ToolCall, ...]:
    """Every call in a reply, in order; BadReply if one is malformed. A reply may have no calls."""
    text = reply.strip()
    whole = text.startswith((PYTHON_TAG, "{", "[{"))
    blocks = [] if whole else _call_blocks(text, tools)
    if not (whole or blocks or any(mark in text for mark in (OPEN, CLOSE, MISTRAL))):
        return ()
    if len(text) > MAX_LETTERS:
        raise BadReply(
            f"the reply has {len(text)} letters; with a call it has {MAX_LETTERS} at most"
        )
    if OPEN in text or CLOSE in text:
        return tuple(_tagged(text))
    if MISTRAL in text:
        return tuple(_after_mark(text.split(MISTRAL, 1)[1]))
    if whole:
        return tuple(_whole(text.removeprefix(PYTHON_TAG)))
    return tuple(_fenced(blocks, tools))


def one_call(reply: str, tools: Sequence[Tool]) -> ToolCall | None:
    """The single call of a reply, for an existing tool and with valid arguments.

    None if the reply makes no call; BadReply if a call is invalid.
    """
    calls = () if ANSWER in reply else calls_in(reply, tools)
    if not calls:
        return None
    if len(calls) > 1:
        raise BadReply(f"{len(calls)} tool calls in the reply; give one")
    call = calls[0]
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        what = nearest(call.name, [tool.name for tool in tools])
        raise BadReply(f"no tool is called '{_named(call.name)}'; {what}")
    _check_arguments(call, tool)
    return call


def _check_arguments(call: ToolCall, tool: Tool) -> None:
    known = {parameter.name: parameter for parameter in tool.parameters}
    for name, value in call.arguments:
        if name not in known:
            what = nearest(name, known) if known else "it takes none"
            raise BadReply(f"'{tool.name}' has no argument '{_named(name)}'; {what}")
        kind = known[name].kind
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise BadReply(f"the argument '{name}' of '{tool.name}' is no {kind}")
        if isinstance(value, str) and not _is_text(value):
            raise BadReply(f"the argument '{name}' of '{tool.name}' has signs that are no text")
    given = dict(call.arguments)
    for parameter in tool.parameters:
        if parameter.required and parameter.name not in given:
            raise BadReply(f"'{tool.name}' needs the argument '{parameter.name}'")


def _named(name: str) -> str:
    """The start of a name from a reply, safe for a prompt: JSON can escape any character."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:40])


def _is_text(value: str) -> bool:
    return all(sign.isprintable() or sign in "\n\t" for sign in value)


def _tagged(text: str) -> Iterable[ToolCall]:
    rest = TAGGED.sub("", text)
    if OPEN in rest or CLOSE in rest:
        raise BadReply(f"a {OPEN} and a {CLOSE} that do not belong together")
    for inside in TAGGED.findall(text):
        if function := FUNCTION.fullmatch(inside.strip()):
            name, body = function.groups()
            if PARAMETER.sub("", body).strip():
                raise BadReply("between <function=...> and </function> stand parameters alone")
            yield _call_of({"name": name, "arguments": _pairs(PARAMETER.findall(body))})
        else:
            yield from _calls_of(_json(inside, f"between {OPEN} and {CLOSE}"))


def _after_mark(text: str) -> Iterable[ToolCall]:
    if not NAMED.match(text):
        yield from _calls_of(_json(text, f"after {MISTRAL}"))
        return
    for part in text.split(MISTRAL):
        named = NAMED.match(part)
        if named is None:
            raise BadReply(f"no name and arguments after {MISTRAL}")
        arguments = _json(part[named.end() :], f"after {MISTRAL}{named.group(1)[:40]}")
        yield _call_of({"name": named.group(1), "arguments": arguments})


def _whole(text: str) -> Iterable[ToolCall]:
    """One object, a list of objects, or several separated by semicolons."""
    where = "in the reply"
    while text:
        found, end = _decode(text.lstrip(), where)
        yield from _calls_of(found)
        text = text.lstrip()[end:].lstrip()
        if text and not text.startswith(";"):
            raise BadReply(f"something follows the call {where}; give the call alone")
        text = text.removeprefix(";").lstrip()


def _call_blocks(text: str, tools: Sequence[Tool]) -> list[tuple[str, str]]:
    """The fenced blocks whose language marks a call."""
    languages = {*CALL_FENCES, *(tool.fence for tool in tools if tool.fence)}
    return [block for block in blocks_in(text) if block[0] in languages]


def _fenced(blocks: Sequence[tuple[str, str]], tools: Sequence[Tool]) -> Iterable[ToolCall]:
    by_fence = {tool.fence: tool for tool in tools if tool.fence}
    for language, inside in blocks:
        if language in CALL_FENCES:
            yield from _calls_of(_json(inside, f"in the ```{language} block"))
        else:
            tool = by_fence[language]
            yield ToolCall(tool.name, ((tool.parameters[0].name, inside.strip()),))


def object_in(text: str, where: str) -> dict[str, Any]:
    """The JSON object that a text is; BadReply if it is none."""
    found = _json(text, where)
    if not isinstance(found, dict):
        raise BadReply(f"no JSON object {where}")
    return found


def _json(text: str, where: str) -> Any:
    found, end = _decode(text.strip(), where)
    if text.strip()[end:].removesuffix("</s>").strip():
        raise BadReply(f"something follows the JSON {where}")
    return found


def _decode(text: str, where: str) -> tuple[Any, int]:
    decoder = DECODER(object_pairs_hook=_pairs, parse_constant=_no_number)
    try:
        return decoder.raw_decode(text)
    except json.JSONDecodeError as error:
        raise BadReply(f"no JSON {where}: {error.msg} at letter {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise BadReply(f"no JSON {where} that can be read") from error


def _pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadReply("a call names one thing twice")
    return found


def _no_number(word: str) -> Any:
    raise BadReply(f"{word} is no number in JSON")


def _calls_of(found: Any) -> Iterable[ToolCall]:
    return [_call_of(one) for one in (found if isinstance(found, list) else [found])]


def _call_of(found: Any) -> ToolCall:
    if not isinstance(found, dict):
        raise BadReply('a call is an object like {"name": ..., "arguments": {...}}')
    name = found.get("name")
    if not isinstance(name, str) or not name.strip():
        raise BadReply("a call needs a 'name', the tool's")
    keys = [key for key in ("arguments", "parameters") if key in found]
    if len(keys) > 1:
        raise BadReply("a call has 'arguments' or 'parameters', not both")
    arguments = found[keys[0]] if keys else {}
    if isinstance(arguments, str):
        arguments = _json(arguments, "in the 'arguments'")
    if not isinstance(arguments, dict):
        raise BadReply(f"the '{keys[0]}' of a call are an object like {{...}}")
    return ToolCall(name.strip(), tuple(arguments.items()))
