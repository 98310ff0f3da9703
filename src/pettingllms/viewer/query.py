"""Queries on episodes: filters, sort order and page, and their form in SQL."""

import json
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pettingllms.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pettingllms.viewer.index import Index

SORTS = (
    "step", "id", "task", "kind", "success", "reward", "steps", "replies", "tokens", "failed",
    "advantage",
)  # fmt: skip
OUTCOMES: dict[str, str] = {
    "success": "success = 1",
    "no_success": "success = 0",
    "partial": "success > 0 AND success < 1",
    "failed": "failure IS NOT NULL",
    "none": "success IS NULL",
}
JSON_COLUMNS = ("outcomes", "rewards", "roles")
MAX_PAGE = 500
NO_STEP = 2**62


@dataclass(frozen=True, slots=True)
class EpisodeQuery:
    """Filters, sort order and page of the episode table."""

    text: str = ""
    """Words to search for; the last one may be a prefix."""
    outcome: str = ""
    kind: str = ""
    first_step: int = 0
    last_step: int = NO_STEP
    sort: str = "step"
    descending: bool = True
    start: int = 0
    count: int = 50


def query_page(index: "Index", query: EpisodeQuery) -> dict[str, Any]:
    """One page of rows and the total number of matches."""
    if query.sort not in SORTS:
        raise ConfigError("sort", [nearest(query.sort, SORTS)])
    where, values = _conditions(query)
    count = max(1, min(query.count, MAX_PAGE))
    # Column names and operators are fixed strings; user input is only in `values`.
    count_all = f"SELECT COUNT(*) FROM episodes {where}"  # noqa: S608
    page = f"SELECT n FROM episodes {where} ORDER BY {_order(query)} LIMIT ? OFFSET ?"  # noqa: S608
    with index.open() as db:
        total = db.execute(count_all, values).fetchone()[0]
        found = db.execute(page, [*values, count, query.start]).fetchall()
        one_row = "SELECT * FROM episodes WHERE n = ?"  # sort row numbers, not full rows
        rows = [visible_row(as_row(db.execute(one_row, (row["n"],)).fetchone())) for row in found]
    return {"total": total, "start": query.start, "rows": rows}


def _order(query: EpisodeQuery) -> str:
    down = "DESC" if query.descending else "ASC"
    if query.sort == "step":
        return f"step {down}, start {'ASC' if query.descending else 'DESC'}"
    return f"{query.sort} IS NULL, {query.sort} {down}, step DESC, start"


def as_row(found: sqlite3.Row) -> dict[str, Any]:
    """A row with its JSON columns decoded."""
    row = dict(found)
    return row | {name: json.loads(row[name]) for name in JSON_COLUMNS}


def visible_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the columns that the page does not use."""
    return {name: value for name, value in row.items() if name not in ("path", "start", "size")}


def neighbors(index: "Index", n: int) -> dict[str, int | None]:
    """The rows before and after a row, in the order they were indexed."""
    with index.open() as db:
        previous = db.execute("SELECT MAX(n) FROM episodes WHERE n < ?", (n,)).fetchone()[0]
        following = db.execute("SELECT MIN(n) FROM episodes WHERE n > ?", (n,)).fetchone()[0]
    return {"previous": previous, "next": following}


def _conditions(query: EpisodeQuery) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if words := _match(query.text):
        parts.append("n IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(words)
    if query.outcome:
        if query.outcome not in OUTCOMES:
            raise ConfigError("outcome", [nearest(query.outcome, OUTCOMES)])
        parts.append(OUTCOMES[query.outcome])
    if query.kind:
        parts.append("kind = ?")
        values.append(query.kind)
    if query.first_step > 0:
        parts.append("step >= ?")
        values.append(query.first_step)
    if query.last_step < NO_STEP:
        parts.append("step <= ?")
        values.append(query.last_step)
    return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _match(text: str) -> str:
    """Words quoted for FTS5, so that none is read as an operator."""
    words = [word.replace('"', '""') for word in text.replace("\0", " ").split()]
    return " ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}" *']) if words else ""
