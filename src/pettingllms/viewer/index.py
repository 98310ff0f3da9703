"""An SQLite index of episodes in JSON lines, for sorting, filtering, full-text search and paging.

A row stores the file and byte range of its episode, so each file is scanned once and an episode is
loaded only when opened. Growing files are followed; the newest are read first, so that a long run
shows rows at once. A rewritten file, as after resuming from a checkpoint, is read again.
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
from pettingllms.types import Episode, episode_from_json, image_loader
from pettingllms.types.episode_files import LINES
from pettingllms.viewer.blocks import INVALID_LINE
from pettingllms.viewer.query import EpisodeQuery, as_row, neighbors, query_page
from pettingllms.viewer.rows import COLUMNS, row_of, words_of
from pettingllms.viewer.sources import ViewedRun

FILE = ".view.sqlite"
VERSION = 1
"""Schema version; an index with another version is rebuilt."""
BATCH = 200
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
ResultT = TypeVar("ResultT")
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
    """An episode file and how far it was read."""

    path: Path
    step: int
    head: str = ""
    done: int = 0


class Index:
    """The index of one run. Any thread may query it; updates are serialized."""

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
        self._retried(self._prepare)

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one query."""
        try:
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
                self._is_damaged = True
            raise RecordError(
                f"{self.path}: {error}; this file is only an index, so delete it and it is rebuilt"
            ) from error

    def _retried(self, work: Callable[[], ResultT]) -> ResultT:
        """Call `work`; if the index turns out damaged, call it again, as `_prepare` rebuilds it."""
        try:
            return work()
        except RecordError:
            if not self._is_damaged:
                raise
            return work()

    def _prepare(self) -> None:
        """Create the tables if needed. A damaged index is deleted and rebuilt."""
        if self._is_damaged:
            for end in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            self._is_damaged = False
        with self.open() as db:
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                self._create(db)

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for name in ("files", "episodes", "words"):
            if name in names:
                db.execute(f"DROP TABLE {name}")
        db.executescript(TABLES)
        db.execute(f"PRAGMA user_version = {VERSION}")

    def update(self, stop: threading.Event | None = None) -> bool:
        """Index new episodes, batch by batch, and return whether there were any."""
        with self._updating:
            return self._retried(lambda: self._update(stop))

    def _update(self, stop: threading.Event | None) -> bool:
        self._prepare()
        with self.open() as db:
            db.execute("PRAGMA synchronous = OFF")  # lost rows are read again
            files = {
                path: step
                for path, step in self.run.episode_files().items()
                if path.suffix == LINES
            }
            found = db.execute("SELECT * FROM files")
            known = {self.run.folder / row["path"]: row for row in found}
            changed, problem = bool(known.keys() - files.keys()), cast("RecordError | None", None)
            for path in known.keys() - files.keys():
                self._forget(db, path)
            sizes = {path: path.stat().st_size for path in files}
            self.num_bytes, self.num_bytes_done = sum(sizes.values()), 0
            for path in sorted(files, key=lambda path: (files[path], path.name), reverse=True):
                file = _resume_file(path, files[path], known.get(path))
                if file.done == 0 and path in known:
                    self._forget(db, path)
                self.num_bytes_done += file.done
                if sizes[path] > file.done:
                    try:
                        changed = self._read(db, file, stop) or changed
                    except RecordError as error:
                        problem = problem or error  # still read the other files
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
        """The file's relative path, which stays valid if the run folder moves."""
        return path.relative_to(self.run.folder).as_posix()

    def _read(self, db: sqlite3.Connection, file: File, stop: threading.Event | None) -> bool:
        """Read a file in batches from its last position up to its last complete line."""
        with file.path.open("rb") as lines:
            lines.seek(file.done)
            while batch := list(_whole_lines(lines, BATCH)):
                with _transaction(db):
                    if _done(db, self._name(file.path)) != file.done:
                        return True  # another viewer is reading it
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
        except (*INVALID_LINE, RecordError) as error:
            raise RecordError(
                f"{file.path}, byte {file.done}: not an episode ({error!r}); was it cut short?"
            ) from error

    def _insert(
        self, db: sqlite3.Connection, file: File, line: bytes, row: dict[str, Any], words: str
    ) -> None:
        row |= {
            "path": self._name(file.path),
            "step": file.step,
            "start": file.done,
            "size": len(line),
        }
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        insert = f"INSERT INTO episodes ({names}) VALUES ({marks})"  # noqa: S608 - fixed names
        found = db.execute(insert, [*row.values()])
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (found.lastrowid, words))

    def page(self, query: EpisodeQuery) -> dict[str, Any]:
        """One page of rows and the number of matches."""
        return query_page(self, query)

    def neighbors(self, n: int) -> dict[str, int | None]:
        """The rows before and after a row, in the order they were indexed."""
        return neighbors(self, n)

    def row(self, n: int) -> dict[str, Any] | None:
        """One row of the index."""
        with self.open() as db:
            found = db.execute("SELECT * FROM episodes WHERE n = ?", (n,)).fetchone()
        return None if found is None else as_row(found)

    def episode(self, row: dict[str, Any]) -> Episode:
        """Load the full episode of a row."""
        return _load(self.run.folder / row["path"], row["start"], row["size"])

    def step_size(self, row: dict[str, Any]) -> int:
        """Bytes of all episodes sampled in the same step."""
        sql = "SELECT SUM(size) FROM episodes WHERE path = ?"
        with self.open() as db:
            return int(db.execute(sql, (row["path"],)).fetchone()[0])

    def same_step(self, row: dict[str, Any], task: str = "") -> list[Episode]:
        """The episodes sampled in the same step, optionally only those of one task."""
        sql = "SELECT * FROM episodes WHERE path = ? AND (? = '' OR task = ?) ORDER BY start"
        with self.open() as db:
            rows = [as_row(one) for one in db.execute(sql, (row["path"], task, task))]
        return [self.episode(one) for one in rows]

    def num_episodes(self) -> int:
        """Number of episodes indexed so far."""
        return self.progress()[0]

    def progress(self) -> tuple[int, int | None]:
        """Number of episodes indexed so far, and the last one's number."""
        with self.open() as db:
            num, last = db.execute("SELECT COUNT(*), MAX(n) FROM episodes").fetchone()
        return int(num), last

    def numbers(self) -> list[int]:
        """The numbers of all episodes in the order of steps."""
        with self.open() as db:
            found = db.execute("SELECT n FROM episodes ORDER BY step, start")
            return [int(row["n"]) for row in found]


def _resume_file(path: Path, step: int, known: sqlite3.Row | None) -> File:
    """The file with its last position, or from its start if its content was replaced."""
    if known is None or known["head"] != _head(path) or path.stat().st_size < known["done"]:
        return File(path, step)
    return File(path, step, known["head"], known["done"])


def _head(path: Path) -> str:
    """Hash of the first line, which differs between runs and between weights."""
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
        return episode_from_json(json.loads(line), image_loader(path))
    except RecordError as error:
        raise RecordError(f"{path}, byte {start}: {error}") from None
    except INVALID_LINE as error:
        raise RecordError(
            f"{path}, byte {start}: the episode changed after it was indexed ({error})"
        ) from error


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    with db:
        yield
