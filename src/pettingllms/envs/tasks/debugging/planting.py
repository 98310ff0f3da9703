"""Planted bugs: changes of one line that make a passing program fail a test."""

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher

from pettingllms.envs.toolkit.answers import BadReply

SWAPS = (
    *(("<=", "<"), (">=", ">"), ("==", "!="), (" and ", " or "), ("+ 1", "+ 2"), ("- 1", "- 2")),
    *((".lower()", ""), (" not in ", " in "), (" in ", " not in "), ("+=", "-="), (" + ", " - ")),
    *((" > ", " < "), (" < ", " > "), ("max(", "min("), ("min(", "max("), ("sum(", "max(")),
    *(("1", "2"), ("0", "1"), ("return ", "return not "), ("print(", "print(0, ")),
)
"""Typical mistakes: the original text and its replacement."""


def changed_line(before: str, after: str) -> int | None:
    """Number of the one line that was changed, inserted or deleted, from 1; None if none was.

    BadReply if there was more than one.
    """
    old, new = _lines(before), _lines(after)
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [block for block in blocks if block[0] != "equal"]
    if not changed:
        return None
    if len(changed) > 1 or any(max(b[2] - b[1], b[4] - b[3]) > 1 for b in changed):
        raise BadReply("more than one line is changed; plant one bug in one line")
    return changed[0][1] + 1


def mutants(program: str) -> Iterator[str]:
    """All variants of the program with one typical mistake that still parse."""
    lines = _lines(program)
    for old, new in SWAPS:
        for at, line in enumerate(lines):
            if old in line and not line.lstrip().startswith(("def ", "import ", "from ")):
                mutant = "\n".join([*lines[:at], line.replace(old, new, 1), *lines[at + 1 :]])
                if _parses(mutant):
                    yield mutant


def _parses(program: str) -> bool:
    try:
        ast.parse(program)
    except SyntaxError:
        return False
    return True


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]
