"""Legal moves as text: names that a model reads in its prompt and gives back as its answer.

A name says the same in every position, which the place in a list does not. Libraries write names
for people, so they are cleaned of colours and line breaks, and those that occur twice are told
apart.
"""

import re
from collections import Counter
from collections.abc import Sequence

from pettingllms.envs.toolkit.answers import BadReply

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """The text without terminal colours and without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in ANSI.sub("", text).splitlines()).strip("\n")


def name_moves(names: Sequence[str]) -> list[str]:
    """One name for each move, each on one line and no two alike."""
    cleaned = [" ".join(ANSI.sub("", name).split()) or "move" for name in names]
    times = Counter(cleaned)
    seen: Counter[str] = Counter()
    told = []
    for name in cleaned:
        seen[name] += 1
        told.append(name if times[name] == 1 else f"{name} #{seen[name]}")
    return told


def read_move(answer: str, names: Sequence[str]) -> int:
    """Which of the moves an answer names; BadReply if it names none."""
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
