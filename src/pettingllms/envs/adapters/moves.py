"""Legal moves as text: names that appear in a prompt and are valid answers.

A name has the same meaning in every state, unlike an index in a list. Libraries format names for
people, so this module removes colors and line breaks and makes duplicates unique.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pettingllms.envs.toolkit.answers import BadReply

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """The text without terminal colors and trailing spaces."""
    return "\n".join(line.rstrip() for line in ANSI.sub("", text).splitlines()).strip("\n")


def name_moves(names: Sequence[str]) -> list[str]:
    """One unique single-line name per move."""
    cleaned = [" ".join(ANSI.sub("", name).split()) or "move" for name in names]
    times = Counter(cleaned)
    seen: Counter[str] = Counter()
    unique = []
    for name in cleaned:
        seen[name] += 1
        unique.append(name if times[name] == 1 else f"{name} #{seen[name]}")
    return unique


def read_move(answer: str, names: Sequence[str]) -> int:
    """The index of the move that an answer names; raise BadReply if it names none."""
    name = " ".join(answer.split())
    if name not in names:
        raise BadReply(f"{name[:40]!r} is not a legal move")
    return names.index(name)


def list_moves(names: Sequence[str], max_listed: int, terse: bool) -> str:
    """The moves as a prompt shows them."""
    if terse:
        return " | ".join(names[:max_listed])
    left = len(names) - max_listed
    more = f"\n... and {left} more, named in the same way" if left > 0 else ""
    short = not any(" " in name for name in names)
    return f"Legal moves:\n{(' ' if short else chr(10)).join(names[:max_listed])}{more}"
