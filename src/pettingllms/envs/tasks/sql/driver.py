"""Run one query on a read-only database inside the sandbox and print the rows as JSON.

The query is data to this program, so only SQLite's results are printed. The file is opened
read-only, and an authorizer permits only reads. A query that runs too long is stopped by counting
its steps, which is deterministic across machines.
"""

import json
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

MAX_STEPS = 2_000_000
STEP = 1_000
MAX_LETTERS = 200
"""Maximum length of a cell; longer text is cut on both sides of a comparison."""
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
PRAGMAS = {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list"}
FORBIDDEN = {
    *("random", "randomblob", "current_date", "current_time", "current_timestamp"),
    *("load_extension", "fts3_tokenizer"),
}
"""Functions that are not deterministic, or that load code."""
DATES = ("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff")
"""Functions that are not deterministic if asked for the current time."""


def run(path: str, sql: str, max_rows: int) -> dict[str, Any]:
    """Columns, rows and the tables that were read; or the error."""
    tables: set[str] = set()
    num_steps = 0

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            tables.add(first)
        named = (action == sqlite3.SQLITE_PRAGMA and first in PRAGMAS) or (
            action in READING and (second or "").lower() not in FORBIDDEN
        )
        return sqlite3.SQLITE_OK if named else sqlite3.SQLITE_DENY

    def count() -> int:
        nonlocal num_steps
        num_steps += STEP
        return int(num_steps > MAX_STEPS)

    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for name in DATES:
        connection.create_function(name, -1, dated(name), deterministic=True)
    connection.set_authorizer(authorize)
    connection.set_progress_handler(count, STEP)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(max_rows + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if "user-defined function" in str(error):
            return {"error": "a date or time in the query is 'now' or wrong; give a fixed one"}
        stopped = num_steps > MAX_STEPS
        return {"error": "the query works for too long" if stopped else str(error)}
    if cursor.description is None:
        return {"error": "the query gives no rows; write a SELECT"}
    if len(rows) > max_rows:
        return {"error": f"the result has more than {max_rows} rows"}
    return {
        "columns": [column[0] for column in cursor.description],
        "rows": [[cell(value) for value in row] for row in rows],
        "tables": sorted(tables),
    }


def dated(name: str) -> Callable[..., Any]:
    """A date function of SQLite that rejects the current time."""
    plain = sqlite3.connect(":memory:")

    def call(*values: Any) -> Any:
        times = values[1:] if name == "strftime" else values
        words = [_text(value).lower() for value in times]
        if not times or "now" in words or words[0].startswith("subsec"):
            raise ValueError(name)
        marks = ", ".join("?" * len(values))
        return plain.execute(f"SELECT {name}({marks})", values).fetchone()[0]

    return call


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def cell(value: Any) -> Any:
    """A value as JSON."""
    if isinstance(value, bytes):
        value = f"x'{value.hex()}'"
    return value[:MAX_LETTERS] if isinstance(value, str) else value


def main() -> None:
    """Read the request and print the answer."""
    request = json.load(sys.stdin)
    answer = json.dumps(run("data.sqlite", request["sql"], request["max_rows"]))
    if len(answer) > request["max_letters"]:
        answer = json.dumps({"error": "the result is too large"})
    sys.stdout.write(answer)


if __name__ == "__main__":
    main()
