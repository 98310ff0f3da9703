"""Questions about databases in the form of Spider (Yu et al., 2018) and BIRD (Li et al., 2023).

A JSON list of objects with `question`, `db_id` and the reference query (`query` in Spider, `SQL` in
BIRD), beside a folder with one SQLite file for each database.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pettingllms.datasets.rows import Row, rows_of
from pettingllms.errors import DataError

FOLDERS = ("database", "databases", "train_databases", "dev_databases", "test_database")
MAGIC = b"SQLite format 3\x00"
MAX_MB = 64


@dataclass(frozen=True, slots=True)
class SqlRow:
    """One question, its reference query and its database."""

    question: str
    query: str
    path: Path
    at: int = 0
    """Its position in the source."""

    @property
    def id(self) -> str:
        """Its row, from 1."""
        return f"row {self.at + 1}"

    def key(self) -> str:
        """The question without spacing and case."""
        return " ".join(self.question.lower().split())

    @property
    def ordered(self) -> bool:
        """Whether the row order counts: if the reference query sorts."""
        return re.search(r"\border\s+by\b", self.query, re.IGNORECASE) is not None

    def database(self) -> bytes:
        """The SQLite file."""
        return _file(self.path)


@lru_cache(maxsize=8)
def read_questions(source: str, part: str = "train") -> tuple[SqlRow, ...]:
    """All questions of a source. DataError names the file and the invalid row."""
    rows = rows_of(source, part, "sql")
    found = tuple(_read(row, at) for at, row in enumerate(rows))
    if not found:
        raise DataError(f"{source}: expected a list of objects with question, query and db_id")
    return found


def _read(row: Row, at: int) -> SqlRow:
    query = row.text(row.first("query", "SQL"))
    return SqlRow(row.text("question"), query, _database(row), at)


def _database(row: Row) -> Path:
    path, db_id = Path(row.file), row.values.get("db_id")
    if not isinstance(db_id, str) or not re.fullmatch(r"\w[\w .-]*", db_id):
        raise row.wrong(f"'db_id' must be the name of a folder, got {db_id!r:.40}")
    places = [path.parent / folder / db_id / f"{db_id}.sqlite" for folder in FOLDERS]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise row.wrong(f"database {places[0]} not found")
    if found.stat().st_size > MAX_MB * 2**20:
        raise row.wrong(f"{found} has more than {MAX_MB} MB")
    with found.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise row.wrong(f"{found} is not a SQLite file")
    return found


@lru_cache(maxsize=64)
def _file(path: Path) -> bytes:
    return path.read_bytes()
