"""Runs inside the sandbox: one query on a database file that it cannot change, the rows as JSON.

The query is data to this program, so what is printed is what SQLite gave. The file is opened
read-only, an authorizer lets nothing but reading through, and a query that works for too long is
stopped by counting its steps, which is the same on every machine.
"""

import json
import sqlite3
import sys
from typing import Any

MAX_STEPS = 2_000_000
STEP = 1_000
MAX_LETTERS = 200
"""Of a cell; what is longer is cut, on both sides of a comparison."""
MAX_OUTPUT = 60_000
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
PRAGMAS = {"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list"}
REFUSED = {"random", "randomblob", "load_extension", "fts3_tokenizer"}
"""Functions whose answer changes from one time to the next, or that load code."""


def run(path: str, sql: str, max_rows: int) -> dict[str, Any]:
    """Columns, rows and the tables that were read; or the error."""
    tables: set[str] = set()
    num_steps = 0

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            tables.add(first)
        named = (action == sqlite3.SQLITE_PRAGMA and first in PRAGMAS) or (
            action in READING and (second or "").lower() not in REFUSED
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
    connection.set_authorizer(authorize)
    connection.set_progress_handler(count, STEP)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(max_rows + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
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


def cell(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        value = f"x'{value.hex()}'"
    return value[:MAX_LETTERS] if isinstance(value, str) else value


def main() -> None:
    """Read the request, print the answer."""
    request = json.load(sys.stdin)
    answer = json.dumps(run("data.sqlite", request["sql"], request["max_rows"]))
    if len(answer) > MAX_OUTPUT:
        answer = json.dumps({"error": "the result is too large"})
    sys.stdout.write(answer)


if __name__ == "__main__":
    main()
