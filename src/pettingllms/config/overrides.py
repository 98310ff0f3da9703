"""Dotted overrides: `rollout.num_samples=8` on the command line, put into a TOML file's data."""

import tomllib
from collections.abc import Iterable
from typing import Any


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Put every override into the data; give the problems of those that cannot be put there."""
    return [problem for raw in overrides if (problem := _apply(data, raw))]


def _apply(data: dict[str, Any], raw: str) -> str | None:
    key, equals, value = raw.partition("=")
    *tables, name = key.strip().split(".")
    if not equals or not name or not all(tables):
        return f"override '{raw}' is not of the form section.key=value"
    table: Any = data
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            return f"override '{raw}': '{part}' is a value, not a table"
    table[name] = _value(value.strip())
    return None


def _value(text: str) -> Any:
    """A TOML value; what is none is taken as a string, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
