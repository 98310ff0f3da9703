"""The table of a run's episodes in SQLite: sorted, filtered, searched and paged, never all at once.

A row says where in which file its episode is, so a file is read once from start to end, and an
episode by itself when somebody looks at it. Files are followed while they grow; the newest are read
first, so that the table of a long run has something to show at once. A file that was written anew,
as by a run that went back to a checkpoint, is read anew.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pettingllms.errors import RecordError
from pettingllms.types import Episode, episode_from_json, images_beside
from pettingllms.viewer.rows import COLUMNS, row_of, words_of
from pettingllms.viewer.sources import ViewedRun

FILE = ".view.sqlite"
VERSION = 1
"""Of the tables; an index of another version is made anew."""
BATCH = 200
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
STRANGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading and keeping a line raises that is no episode."""
ResultT = TypeVar("ResultT")
JSON_COLUMNS = ("outcomes", "rewards", "roles")
TABLES = f"""
CREATE TABLE files (path TEXT PRIMARY KEY, step INTEGER, head TEXT, done INTEGER);
CREATE TABLE episodes (
  n INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT, step INTEGER, start INTEGER, size INTEGER,
  {", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}
);
CREATE INDEX by_step ON episodes (step DESC, start ASC);
CREATE INDEX by_path ON episodes (path, task);
CREATE VIRTUAL TABLE words USING fts5 (text, content='', detail='full');
"""


@dataclass(slots=True)
class File:
    """How far a file has been read."""

    path: Path
    step: int
    head: str = ""
    done: int = 0


class Index:
    """The table of one run. Any thread may ask; one call at a time brings it up to date."""

    def __init__(self, run: ViewedRun) -> None:
        self.run = run
        self.num_bytes = self.num_bytes_done = 0
        self._updating = threading.Lock()
        folder = run.path
        if not run.path.is_dir() or not os.access(run.path, os.W_OK):
            folder = Path(tempfile.mkdtemp(prefix="pettingllms-view-"))
            weakref.finalize(self, shutil.rmtree, folder)
        self.path = folder / FILE
        self._is_damaged = False
        self._mended(self._prepare)

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one question."""
        try:
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
                self._is_damaged = True
            raise RecordError(
                f"{self.path}: {error}; it is only a table of the episodes, so take it away"
            ) from error

    def _mended(self, work: Callable[[], ResultT]) -> ResultT:
        """What the work comes to; done again if it meets damage, as `_prepare` takes it away."""
        try:
            return work()
        except RecordError:
            if not self._is_damaged:
                raise
            return work()

    def _prepare(self) -> None:
        """Make the tables if there are none of ours. Damaged ones hold nothing that the files of
        episodes do not."""
        if self._is_damaged:
            for end in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            self._is_damaged = False
        with self.open() as db:
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                self._make(db)

    def _make(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for name in ("files", "episodes", "words"):
            if name in names:
                db.execute(f"DROP TABLE {name}")
        db.executescript(TABLES)
        db.execute(f"PRAGMA user_version = {VERSION}")

    def update(self, stop: threading.Event | None = None) -> bool:
        """Read what is new; whether there was anything. Rows are there as they are read."""
        with self._updating:
            return self._mended(lambda: self._update(stop))

    def _update(self, stop: threading.Event | None) -> bool:
        self._prepare()
        with self.open() as db:
            db.execute("PRAGMA synchronous = OFF")  # what is lost can be read again
            there = self.run.episode_files()
            found = db.execute("SELECT * FROM files")
            known = {self.run.folder / row["path"]: row for row in found}
            changed, problem = bool(known.keys() - there.keys()), cast("RecordError | None", None)
            for path in known.keys() - there.keys():
                self._forget(db, path)
            sizes = {path: path.stat().st_size for path in there}
            self.num_bytes, self.num_bytes_done = sum(sizes.values()), 0
            for path in sorted(there, key=lambda path: (there[path], path.name), reverse=True):
                file = _file_of(path, there[path], known.get(path))
                if file.done == 0 and path in known:
                    self._forget(db, path)
                self.num_bytes_done += file.done
                if sizes[path] > file.done:
                    try:
                        changed = self._read(db, file, stop) or changed
                    except RecordError as error:
                        problem = problem or error  # the other files are read all the same
                if stop is not None and stop.is_set():
                    break
            if problem is not None:
                raise problem
            return changed

    def _forget(self, db: sqlite3.Connection, path: Path) -> None:
        with _transaction(db):
            db.execute("DELETE FROM episodes WHERE path = ?", (self._name(path),))
            db.execute("DELETE FROM files WHERE path = ?", (self._name(path),))

    def _name(self, path: Path) -> str:
        """A file as the tables call it: a run may be moved, or be looked at from elsewhere."""
        return path.relative_to(self.run.folder).as_posix()

    def _read(self, db: sqlite3.Connection, file: File, stop: threading.Event | None) -> bool:
        """Read a file from where it was left, a batch at a time, up to its last whole line."""
        with file.path.open("rb") as lines:
            lines.seek(file.done)
            while batch := list(_whole_lines(lines, BATCH)):
                with _transaction(db):
                    if _done(db, self._name(file.path)) != file.done:
                        return True  # another viewer reads it as well
                    for line in batch:
                        self._add(db, file, line)
                        file.done += len(line)
                        self.num_bytes_done += len(line)
                    file.head = file.head or _head(file.path)
                    row = (self._name(file.path), file.step, file.head, file.done)
                    db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", row)
                if stop is not None and stop.is_set():
                    break
        return True

    def _add(self, db: sqlite3.Connection, file: File, line: bytes) -> None:
        try:
            data = json.loads(line)
            row, words = row_of(data, self.run.reward), words_of(data)
            self._insert(db, file, line, row, words)
        except (*STRANGE, RecordError) as error:
            raise RecordError(
                f"{file.path}, byte {file.done}: not an episode ({error!r}); was it cut short?"
            ) from error

    def _insert(
        self, db: sqlite3.Connection, file: File, line: bytes, row: dict[str, Any], words: str
    ) -> None:
        row |= {name: json.dumps(row[name]) for name in JSON_COLUMNS}
        row |= {
            "path": self._name(file.path),
            "step": file.step,
            "start": file.done,
            "size": len(line),
        }
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        insert = f"INSERT INTO episodes ({names}) VALUES ({marks})"  # noqa: S608 - names of ours
        found = db.execute(insert, [*row.values()])
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (found.lastrowid, words))

    def row(self, n: int) -> dict[str, Any] | None:
        """One row of the table."""
        with self.open() as db:
            found = db.execute("SELECT * FROM episodes WHERE n = ?", (n,)).fetchone()
        return None if found is None else as_row(found)

    def episode(self, row: dict[str, Any]) -> Episode:
        """The episode of a row, whole."""
        return _load(self.run.folder / row["path"], row["start"], row["size"])

    def step_size(self, row: dict[str, Any]) -> int:
        """Bytes of the episodes that were sampled together with this one."""
        ask = "SELECT SUM(size) FROM episodes WHERE path = ?"
        with self.open() as db:
            return int(db.execute(ask, (row["path"],)).fetchone()[0])

    def same_step(self, row: dict[str, Any], task: str = "") -> list[Episode]:
        """The episodes that were sampled together with this one, or of these those of a task."""
        ask = "SELECT * FROM episodes WHERE path = ? AND (? = '' OR task = ?) ORDER BY start"
        with self.open() as db:
            rows = [as_row(one) for one in db.execute(ask, (row["path"], task, task))]
        return [self.episode(one) for one in rows]

    def num_episodes(self) -> int:
        """How many there are so far."""
        with self.open() as db:
            return int(db.execute("SELECT COUNT(*) FROM episodes").fetchone()[0])


def as_row(found: sqlite3.Row) -> dict[str, Any]:
    """A row as plain data."""
    row = dict(found)
    return row | {name: json.loads(row[name]) for name in JSON_COLUMNS}


def _file_of(path: Path, step: int, known: sqlite3.Row | None) -> File:
    """A file as far as it was read, or at its start if it is another by now."""
    if known is None or known["head"] != _head(path) or path.stat().st_size < known["done"]:
        return File(path, step)
    return File(path, step, known["head"], known["done"])


def _head(path: Path) -> str:
    """A mark of the first line: plays of another run, or of other weights, begin otherwise."""
    with path.open("rb") as file:
        return hashlib.sha256(file.readline()).hexdigest()


def _done(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT done FROM files WHERE path = ?", (name,)).fetchone()
    return 0 if row is None else int(row["done"])


def _whole_lines(file: Any, count: int) -> Iterator[bytes]:
    for _ in range(count):
        line = file.readline()
        if not line.endswith(b"\n"):
            return
        yield line


def _load(path: Path, start: int, size: int) -> Episode:
    with path.open("rb") as file:
        file.seek(start)
        line = file.read(size)
    try:
        return episode_from_json(json.loads(line), images_beside(path))
    except RecordError as error:
        raise RecordError(f"{path}, byte {start}: {error}") from None
    except STRANGE as error:
        raise RecordError(
            f"{path}, byte {start}: the episode has changed since ({error})"
        ) from error


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield
