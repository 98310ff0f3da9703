"""Dotted overrides such as `rollout.num_samples=8`, merged into the data of a TOML file."""

import tomllib
from collections.abc import Iterable
from typing import Any


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Merge overrides into the data; return the problems of those that cannot be merged."""
    return [problem for raw in overrides if (problem := _apply(data, raw))]


def _apply(data: dict[str, Any], raw: str) -> str | None:
    key, equals, value = raw.partition("=")
    try:
        path = tomllib.loads(f"{key}={{}}") if equals else {}
    except tomllib.TOMLDecodeError:
        path = {}
    if not path:
        return (
            f"override '{raw}' is not of the form section.key=value, such as rollout.num_samples=8"
        )
    change: Any = _value(value.strip())
    for name in reversed(_names(path)):
        change = {name: change}
    return _merge(data, change, raw)


def _names(path: dict[str, Any]) -> list[str]:
    """The parts of a dotted key, with TOML's quoting rules."""
    names = []
    while path:
        ((name, path),) = path.items()
        names.append(name)
    return names


def _merge(table: dict[str, Any], change: dict[str, Any], raw: str) -> str | None:
    for name, value in change.items():
        if not isinstance(value, dict):
            table[name] = value
            continue
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return f"override '{raw}': '{name}' is a value, not a table"
        if problem := _merge(inner, value, raw):
            return problem
    return None


def _value(text: str) -> Any:
    """A TOML value; anything else is a string, so that names need no quotes."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text
