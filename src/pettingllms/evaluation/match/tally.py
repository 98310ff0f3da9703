"""How the games of a model ended, in a text file that every call adds to.

The file is a table that people read and the next call reads back: one row for each game, player and
opponent. A file that is not such a table is not written over.
"""

import os
import re
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
HEAD = ("game", "player", "against", *OUTCOMES, "games")
GAP = "  "


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """What games are counted together."""

    game: str
    player: str
    against: str


def outcome_of(episode: Episode, role: str) -> Outcome:
    """How a game ended for a role.

    Where nobody reached an aim, rivals, who are paid apart, have drawn, and a team, which is paid
    together, has lost.
    """
    if episode.failure is not None or episode.limit or not episode.success:
        return "unfinished"
    if episode.success[role]:
        return "win"
    rivals = any(step.rewards.agent for step in episode.steps)
    return "draw" if rivals and not any(episode.success.values()) else "loss"


def summary_path(folder: Path, model: str) -> Path:
    """The file of a model; its name has only what every file system takes."""
    return folder / f"game_summary_{re.sub(r'[^A-Za-z0-9._-]+', '_', model)}.txt"


def add_to_summary(path: Path, model: str, games: Iterable[tuple[Row, Outcome]]) -> Counter[str]:
    """Add games to what the file has, and write it whole; all games by outcome. Matches that end at
    the same time wait for each other."""
    with _alone(path.parent):
        return _add(path, model, games)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While nobody else holds the folder; where a file system has no locks, nobody can tell."""
    import fcntl

    place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _add(path: Path, model: str, games: Iterable[tuple[Row, Outcome]]) -> Counter[str]:
    counts = read_summary(path, model)
    for row, outcome in games:
        counts.setdefault(_plain(row), Counter())[outcome] += 1
    total: Counter[str] = Counter()
    for counted in counts.values():
        total += counted
    rows = [(row.game, row.player, row.against, *_cells(counts[row])) for row in sorted(counts)]
    table = [HEAD, *rows, ("all", "", "", *_cells(total))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = [[c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in table]
    text = "\n".join(GAP.join(line).rstrip() for line in padded)
    write_whole(path, f"model: {model}\n\n{text}\n")
    return total


def _cells(counts: Counter[str]) -> tuple[str, ...]:
    return (*(str(counts[outcome]) for outcome in OUTCOMES), str(counts.total()))


def _plain(row: Row) -> Row:
    """Without what would end a cell."""
    return Row(*(" ".join(cell.split()) or "-" for cell in (row.game, row.player, row.against)))


def read_summary(path: Path, model: str) -> dict[Row, Counter[str]]:
    """What the file has; nothing if it is not there, an error if it is something else."""
    if not path.exists():
        return {}
    first, _, head, *lines = [*path.read_text(encoding="utf-8").splitlines(), "", "", ""]
    if first != f"model: {model}":
        raise RecordError(f"{path} is about '{first[7:60]}', not '{model}'; give another --logs")
    if _split(head) != list(HEAD):
        raise RecordError(f"{path} is not a summary that this command wrote; move it away")
    found: dict[Row, Counter[str]] = {}
    for line in [line for line in lines if line and not line.startswith("all" + GAP)]:
        game, player, against, *numbers = [*_split(line), "", "", ""]
        counts = [int(n) for n in numbers if n.isascii() and n.isdigit()]
        if len(counts) != len(OUTCOMES) + 1 or len(_split(line)) != len(HEAD):
            raise RecordError(f"{path}: '{line[:60]}' is no row of a summary; move the file away")
        found[Row(game, player, against)] = Counter(dict(zip(OUTCOMES, counts, strict=False)))
    return found


def _split(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())
