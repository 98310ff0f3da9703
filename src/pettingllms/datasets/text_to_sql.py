"""Questions about databases in the form of Spider (Yu et al., 2018) and BIRD (Li et al., 2023).

A JSON list of objects with `question`, `db_id` and the reference query (`query` in Spider, `SQL` in
BIRD), beside a folder with one SQLite file for each database.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

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

    @property
    def ordered(self) -> bool:
        """Whether the row order counts: if the reference query sorts."""
        return re.search(r"\border\s+by\b", self.query, re.IGNORECASE) is not None

    def database(self) -> bytes:
        """The SQLite file."""
        return _file(self.path)


@lru_cache(maxsize=8)
def read_questions(file: str) -> tuple[SqlRow, ...]:
    """All questions of a file. DataError names the file and the invalid row."""
    path = Path(file)
    try:
        rows = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise DataError(f"{path}: expected a list of objects with question, query and db_id")
    return tuple(_row(path, at, row) for at, row in enumerate(rows, 1))


def _row(path: Path, at: int, row: Any) -> SqlRow:
    if not isinstance(row, dict):
        raise DataError(f"{path}, row {at}: expected an object, got {type(row).__name__}")
    question = _text(path, at, "question", row.get("question"))
    query = _text(path, at, "query", row.get("query") or row.get("SQL"))
    return SqlRow(question, query, _database(path, at, row.get("db_id")))


def _text(path: Path, at: int, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{path}, row {at}: '{name}' must be a text, got {value!r:.40}")
    return value.strip()


def _database(path: Path, at: int, db_id: Any) -> Path:
    if not isinstance(db_id, str) or not re.fullmatch(r"\w[\w .-]*", db_id):
        raise DataError(
            f"{path}, row {at}: 'db_id' must be the name of a folder, got {db_id!r:.40}"
        )
    places = [path.parent / folder / db_id / f"{db_id}.sqlite" for folder in FOLDERS]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(f"{path}, row {at}: database {places[0]} not found")
    if found.stat().st_size > MAX_MB * 2**20:
        raise DataError(f"{path}, row {at}: {found} has more than {MAX_MB} MB")
    with found.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise DataError(f"{path}, row {at}: {found} is not a SQLite file")
    return found


@lru_cache(maxsize=64)
def _file(path: Path) -> bytes:
    return path.read_bytes()
