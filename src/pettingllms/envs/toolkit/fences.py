"""Fenced blocks in a reply, found line by line so that parsing takes linear time on any input."""

import re

OPENS = re.compile(r"```([\w+-]*)[ \t]*")
WHOLE = re.compile(r"\A```[a-z0-9]*\n(.*?)\n?```\Z", re.DOTALL)


def blocks_in(text: str) -> list[tuple[str, str]]:
    """Language and content of every closed block, in order."""
    found: list[tuple[str, str]] = []
    language: str | None = None
    inside: list[str] = []
    for line in text.split("\n"):
        if language is None:
            if opens := OPENS.fullmatch(line):
                language, inside = opens[1], []
        elif line.rstrip(" \t") == "```":
            found.append((language, "".join(f"{one}\n" for one in inside)))
            language = None
        else:
            inside.append(line)
    return found


def unfenced(text: str) -> str:
    """The text without a fence that encloses all of it, if there is one."""
    fenced = WHOLE.match(text)
    return fenced[1] if fenced else text
