"""Run untrusted queries in the sandbox on a read-only database."""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from pettingllms.envs.toolkit.answers import BadReply
from pettingllms.envs.toolkit.fences import unfenced
from pettingllms.envs.toolkit.sandboxed import run_sandboxed
from pettingllms.errors import DataError, nearest
from pettingllms.sandbox import Limits, python

Cell = str | int | float | None
MAX_ROWS = 200
"""Maximum number of rows that a role may look at."""
GRADED_ROWS = 10_000
"""Maximum number of rows of an answer and of the reference result."""
ROW_LETTERS = 300
"""Average JSON length of a row."""
MAX_QUERY = 2000
"""Maximum length of a query."""
SHOWN_ROWS = 5
SECONDS = 8.0
"""Time limit for what the driver's step count does not cover."""
FILE = "data.sqlite"
TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a query: rows, or an error."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    tables: frozenset[str] = frozenset()
    """Tables that were read."""
    error: str | None = None

    def text(self) -> str:
        """The first rows, for a role to read."""
        if self.error is not None:
            return f"Error: {self.error}"
        lines = [" | ".join(self.columns)]
        lines += [" | ".join(_word(cell) for cell in row) for row in self.rows[:SHOWN_ROWS]]
        more = len(self.rows) - SHOWN_ROWS
        return "\n".join([*lines, f"({more} more rows)"] if more > 0 else lines)


class _Stopped(Exception):  # noqa: N818 - a result that depends on timing, not an error
    pass


def run_query(database: bytes, sql: str, max_rows: int = MAX_ROWS) -> Result:
    """Run a query on a database in the sandbox. Every outcome is a result; deterministic results
    are cached."""
    try:
        return _run(database, sql, max_rows)
    except _Stopped as stopped:
        return Result(error=str(stopped))


@lru_cache(maxsize=1024)
def _run(database: bytes, sql: str, max_rows: int) -> Result:
    letters = ROW_LETTERS * max_rows
    request = json.dumps({"sql": sql, "max_rows": max_rows, "max_letters": letters})
    limits = Limits(
        seconds=SECONDS, disk_mb=16 + 2 * len(database) // 2**20, output_kb=64 + letters // 1024
    )
    outcome = run_sandboxed(python(_driver(), request, {FILE: database}), limits)
    if not outcome.ok:
        raise _Stopped(f"the query was stopped ({outcome.end})")
    found = json.loads(outcome.stdout)
    if "error" in found:
        return Result(error=found["error"])
    rows = tuple(tuple(row) for row in found["rows"])
    return Result(tuple(found["columns"]), rows, frozenset(found["tables"]))


def checked_query(text: str) -> str:
    """A query without its fence and last semicolon; BadReply if it cannot be a query."""
    query = unfenced(text.strip()).strip().removesuffix(";").strip()
    if len(query) > MAX_QUERY:
        raise BadReply(f"the query has {len(query)} letters; {MAX_QUERY} at most")
    if not all(sign.isprintable() or sign in "\n\t" for sign in query):
        raise BadReply("the query has signs that are no text")
    if not query.lower().startswith(("select", "with", "values", "pragma")):
        raise BadReply("a query begins with SELECT or WITH")
    return query


@lru_cache(maxsize=4096)
def expected_result(database: bytes, sql: str) -> Result:
    """The result of a reference query."""
    result = run_query(database, sql, GRADED_ROWS)
    if result.error is not None:
        raise DataError(f"the reference query {sql[:200]!r} fails: {result.error}")
    return result


@lru_cache(maxsize=1024)
def tables_of(database: bytes) -> tuple[tuple[str, str], ...]:
    """Name and CREATE statement of every table."""
    found = run_query(database, TABLES)
    if found.error is not None:
        raise DataError(f"the database cannot be read: {found.error}")
    return tuple((str(name), str(sql)) for name, sql in found.rows)


def describe_table(database: bytes, name: str) -> tuple[str, str]:
    """A table's exact name, and its CREATE statement with its first rows."""
    known = dict(tables_of(database))
    table = next((table for table in known if table.lower() == name.strip().lower()), None)
    if table is None:
        raise BadReply(f"no table is called '{name[:40]}'; {nearest(name, known)}")
    quoted = table.replace('"', '""')
    rows = run_query(database, f'SELECT * FROM "{quoted}" LIMIT 2')  # noqa: S608 - from the file
    return table, f"{known[table]}\n{rows.text()}"


def _word(cell: Cell) -> str:
    return "NULL" if cell is None else f"{cell:.10g}" if isinstance(cell, float) else str(cell)


@cache
def _driver() -> str:
    return Path(__file__).with_name("driver.py").read_text(encoding="utf-8")
