"""Plain data as YAML, so that the core needs no YAML package.

Strings are quoted unless they are plainly no other type, so that no value of a configuration can
change the structure of a file. Text of several lines is a literal block.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
BLOCK = re.compile(r"(?![ \n])(?:[\n\x20-\x7e]*[\x21-\x7e]\n)")
"""Text that a literal block keeps as it is, if no line ends in a space."""


def to_yaml(data: Mapping[str, Any]) -> str:
    """A mapping of strings, integers, booleans, lists and mappings as YAML."""
    return "".join(f"{line}\n" for line in _mapping(data))


def _mapping(data: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, value in data.items():
        name = _text(key)
        if isinstance(value, Mapping) and value:
            lines += [f"{name}:", *_indented(_mapping(value))]
        elif _is_list(value) and value:
            lines += [f"{name}:", *_indented(_list(value))]
        elif isinstance(value, str) and _is_block(value):
            lines += [f"{name}: |", *_indented(value.splitlines())]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return lines


def _list(values: Sequence[Any]) -> list[str]:
    lines = []
    for value in values:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value)
            lines += [f"- {first}", *_indented(rest)]
        else:
            lines.append(f"- {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)
        case Mapping() if not value:
            return "{}"
        case list() | tuple() if not value:
            return "[]"
    raise TypeError(f"{type(value).__name__} in a list or as a value")


def _text(value: str) -> str:
    plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
    return value if plain else '"' + "".join(map(_character, value)) + '"'


def _character(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    return one if " " <= one <= "~" else f"\\U{ord(one):08x}"


def _is_block(value: str) -> bool:
    return BLOCK.fullmatch(value) is not None and " \n" not in value


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
