"""The names of metrics in the tables of the docs, and which of a run are not among them."""

import re
from collections.abc import Iterable
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
HEAD = re.compile(r"^\| (?:(?:metric under )?`(?P<prefix>[\w/]+)/`|metric|other)")
"""First cell of the head of a table of metrics."""
NAME = re.compile(r"`([\w/]+)`")
FREE = re.compile(r"[A-Z][A-Z0-9_]*")
"""A part of a documented name that stands for any name."""


def documented() -> set[str]:
    """Documented names, such as `roles/ROLE/reward`."""
    found = set()
    for page in sorted(GUIDES.glob("*.md")):
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
            found |= set(_names(table.splitlines()))
    return {re.sub("^policies/[A-Z]+/", "policies/POLICY/", name) for name in found if "/" in name}


def undocumented(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names that match no documented one."""
    patterns = [re.compile(FREE.sub("[^/]+", name)) for name in known]
    return sorted(name for name in names if not any(one.fullmatch(name) for one in patterns))


def _names(lines: list[str]) -> Iterable[str]:
    head = HEAD.match(lines[0])
    if head is None:
        return
    prefix = head["prefix"]
    for line in lines[2:]:
        for name in NAME.findall(line.split("|")[1]):
            yield f"{prefix}/{name}" if prefix else name
