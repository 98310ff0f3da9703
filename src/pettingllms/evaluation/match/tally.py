"""A cumulative tally of a model's games, in a readable text file.

The file is a table with one row per environment, role and opponent. The next match reads it back
and adds to it. Other files are never overwritten.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pettingllms.errors import RecordError
from pettingllms.runs.folder import write_whole
from pettingllms.types import Episode

Outcome = Literal["win", "loss", "draw", "unfinished"]
OUTCOMES: tuple[Outcome, ...] = ("win", "loss", "draw", "unfinished")
HEAD = ("game", "role", "against", *OUTCOMES, "games")
OLD_ROLE = "seat"
"""Name of the role column in version 0.1."""
GAP = "  "


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A row of the tally: games with these values are counted together."""

    game: str
    role: str
    against: str


def outcome_of(episode: Episode, role: str) -> Outcome:
    """The result of a game for a role.

    If no role succeeded, competitors (with agent rewards) draw, and a team (with team rewards)
    loses.
    """
    if episode.failure is not None or episode.limit or not episode.success:
        return "unfinished"
    if episode.success[role]:
        return "win"
    rivals = any(step.rewards.agent for step in episode.steps)
    return "draw" if rivals and not any(episode.success.values()) else "loss"


def summary_path(folder: Path, model: str) -> Path:
    """The file of a model, named with portable characters only."""
    return folder / f"game_summary_{re.sub(r'[^A-Za-z0-9._-]+', '_', model)}.txt"


def add_to_summary(path: Path, model: str, games: Iterable[tuple[Row, Outcome]]) -> Counter[str]:
    """Add games to the file and return all its games by outcome. A lock serializes concurrent
    matches."""
    with _locked(path.parent):
        return _add(path, model, games)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, where the file system supports locks. Windows has none."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _add(path: Path, model: str, games: Iterable[tuple[Row, Outcome]]) -> Counter[str]:
    counts = read_summary(path, model)
    for row, outcome in games:
        counts.setdefault(_plain(row), Counter())[outcome] += 1
    total: Counter[str] = Counter()
    for counted in counts.values():
        total += counted
    rows = [(row.game, row.role, row.against, *_cells(counts[row])) for row in sorted(counts)]
    table = [HEAD, *rows, ("all", "", "", *_cells(total))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = [[c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in table]
    text = "\n".join(GAP.join(line).rstrip() for line in padded)
    write_whole(path, f"model: {model}\n\n{text}\n")
    return total


def _cells(counts: Counter[str]) -> tuple[str, ...]:
    return (*(str(counts[outcome]) for outcome in OUTCOMES), str(counts.total()))


def _plain(row: Row) -> Row:
    """Cells without column separators."""
    return Row(*(" ".join(cell.split()) or "-" for cell in (row.game, row.role, row.against)))


def read_summary(path: Path, model: str) -> dict[Row, Counter[str]]:
    """Read the tally; empty if the file does not exist, RecordError if it is not a tally."""
    if not path.exists():
        return {}
    first, _, head, *lines = [*path.read_text(encoding="utf-8").splitlines(), "", "", ""]
    if first != f"model: {model}":
        raise RecordError(
            f"{path} is the tally of '{first[7:60]}', not '{model}'; choose another --logs"
        )
    if [HEAD[1] if name == OLD_ROLE else name for name in _split(head)] != list(HEAD):
        raise RecordError(f"{path} is not a tally of this command; move it away")
    found: dict[Row, Counter[str]] = {}
    for line in [line for line in lines if line and not line.startswith("all" + GAP)]:
        game, role, against, *numbers = [*_split(line), "", "", ""]
        counts = [int(n) for n in numbers if n.isascii() and n.isdigit()]
        if len(counts) != len(OUTCOMES) + 1 or len(_split(line)) != len(HEAD):
            raise RecordError(f"{path}: '{line[:60]}' is not a row of a tally; move the file away")
        found[Row(game, role, against)] = Counter(dict(zip(OUTCOMES, counts, strict=False)))
    return found


def _split(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())
