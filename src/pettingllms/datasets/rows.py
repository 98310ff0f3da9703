"""Rows of a data file: JSON lines, CSV or parquet, optionally gzipped.

JSON lines and parquet are read row by row, since published sets have files of gigabytes.

An invalid row is an error that names its file and number. Rows are never skipped silently, because
results on a smaller data set could not be reproduced.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pettingllms.datasets.sources import Selection, Source, source_of
from pettingllms.datasets.store import default_split, folder_of, stored_files
from pettingllms.errors import DataError, nearest

MAX_FIELD = 1 << 24
"""Maximum characters of a CSV field."""
MAX_UNPACKED = 4 << 30
"""Maximum bytes of an unpacked gzip file, against decompression bombs."""
NUM_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its location, and its values by name."""

    file: str
    number: int
    """From 1. In JSON lines, the line number; the header of a CSV file does not count."""
    values: Mapping[str, Any]
    folder: str = ""
    """The given folder, if the file was found in one."""

    @property
    def name(self) -> str:
        """File name and row number, for messages. In a folder, the path relative to it, since
        several subfolders may have files of the same name."""
        file = Path(self.file)
        shown = file.relative_to(self.folder).as_posix() if self.folder else file.name
        return f"{shown}:{self.number}"

    def wrong(self, what: str) -> DataError:
        """An error about this row."""
        return DataError(f"{self.file}, row {self.number}: {what}")

    def has(self, key: str) -> bool:
        """Whether the row has a value of this name."""
        return self.values.get(key) is not None

    def get(self, key: str, kind: type | tuple[type, ...], what: str) -> Any:
        """A required value; `what` describes it in messages."""
        if key not in self.values:
            close = nearest(key, [str(name) for name in self.values])
            raise self.wrong(f"has no '{key}'; expected {what}, {close}")
        value = self.values[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(f"'{key}' is {value!r:.60}; expected {what}")
        return value

    def text(self, key: str) -> str:
        """A text that is not empty."""
        found = str(self.get(key, str, "a text")).strip()
        if not found:
            raise self.wrong(f"'{key}' is empty; expected a text")
        return found

    def first(self, *keys: str) -> str:
        """The first of these names that the row has; the first name if it has none."""
        return next((key for key in keys if self.has(key)), keys[0])


def read_rows(path: str | Path) -> Iterator[Row]:
    """All rows of a file, or of all files of a folder; the suffix determines the format."""
    if Path(path).is_dir():
        files = sorted(part for part in Path(path).rglob("*") if part.is_file())
        yield from _rows_in(files, path)
    else:
        yield from _rows_of(Path(path))


def rows_of(text: str, part: str, kind: str) -> Iterator[Row]:
    """The selected rows of a source, with its columns renamed; `part` is train or test."""
    source = source_of(text, kind)
    if source.kind == "file":
        rows = read_rows(source.name)
    else:
        files = stored_files(source, default_split(source, part))
        rows = _rows_in(files, folder_of(source))
    yield from _selected(rows, source)


def text_files(text: str, part: str, kind: str) -> tuple[Path, ...]:
    """The files of a source whose data has no rows, such as levels."""
    source = source_of(text, kind)
    if source.kind != "file":
        return stored_files(source, default_split(source, part))
    path = Path(source.name)
    return tuple(sorted(path.rglob("*.txt"))) if path.is_dir() else (path,)


def _rows_in(files: Iterable[Path], folder: str | Path) -> Iterator[Row]:
    for file in files:
        yield from (replace(row, folder=str(folder)) for row in _rows_of(file))


def _selected(rows: Iterator[Row], source: Source) -> Iterator[Row]:
    chosen, entry = source.selection, source.published
    columns = {**(entry.columns if entry else {}), **chosen.columns}
    if chosen.begin or chosen.end:
        rows = _dated(rows, chosen, source, columns)
    rows = islice(rows, chosen.first, chosen.last)
    for row in rows:
        yield replace(row, values=_renamed(row, columns)) if columns else row


def _dated(
    rows: Iterator[Row], chosen: Selection, source: Source, columns: Mapping[str, str]
) -> Iterator[Row]:
    name = source.published.dates if source.published else columns.get("date", "date")
    if not name:
        raise DataError(f"'{source.text}': '{source.name}' has no dates; leave out from and to")
    for row in rows:
        day = row.text(name)[:10]
        if chosen.begin <= day and (not chosen.end or day <= chosen.end):
            yield row


def _renamed(row: Row, columns: Mapping[str, str]) -> dict[str, Any]:
    for field in columns.values():
        row.get(field, object, "the column that the source names")
    return {**row.values, **{name: row.values[field] for name, field in columns.items()}}


def _rows_of(file: Path) -> Iterator[Row]:
    packed = file.suffix == ".gz"
    kind = Path(file.stem if packed else file.name).suffix.lower()
    readers = {".jsonl": _json_lines_in, ".json": _json, ".csv": _csv}
    if kind == ".parquet" and not packed:
        return _parquet(file)
    if kind == ".jsonl" and not packed:
        return _json_lines(file, _lines_of(file))
    if kind not in readers:
        names = f"{', '.join(readers)}, each with .gz or without, or .parquet"
        raise DataError(f"{file}: unknown format; end the file name in {names}")
    return readers[kind](file, _text_of(file, packed))


def _text_of(file: Path, packed: bool) -> str:
    try:
        raw = file.read_bytes()
        return (_unpacked(file, raw) if packed else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{file}, row {row}: not UTF-8 ({error.reason})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file}, row 1: not a complete gzip file ({error})") from None
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror or error}; give an existing file"
        ) from None


def _unpacked(file: Path, raw: bytes) -> bytes:
    found = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MAX_UNPACKED + 1)
    if len(found) > MAX_UNPACKED:
        raise DataError(f"{file}, row 1: unpacks to more than {MAX_UNPACKED:,} bytes; unpack it")
    return found


def _lines_of(file: Path) -> Iterator[str]:
    try:
        with file.open("rb") as opened:
            for number, line in enumerate(opened, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}, row {number}: not UTF-8 ({error.reason})") from None
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror or error}; give an existing file"
        ) from None


def _json(file: Path, text: str) -> Iterator[Row]:
    """One list of objects, one object, or JSON lines under another name."""
    try:
        whole = _json_value(str(file), 1, text)
    except DataError:
        if not _begins_with_a_line(text):
            raise
        yield from _json_lines_in(file, text)
        return
    for number, value in enumerate(whole if isinstance(whole, list) else [whole], start=1):
        yield _row_of(str(file), number, value)


def _begins_with_a_line(text: str) -> bool:
    """Whether text that is not one JSON document is JSON lines: its first line is JSON, or it is
    empty."""
    try:
        json.loads(text.lstrip().split("\n", 1)[0] or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _json_lines_in(file: Path, text: str) -> Iterator[Row]:
    return _json_lines(file, text.split("\n"))


def _json_lines(file: Path, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row_of(str(file), number, _json_value(str(file), number, line))


def _json_value(file: str, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}, row {number}: not JSON ({error})") from None


def _row_of(file: str, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        what = type(value).__name__
        raise DataError(f"{file}, row {number}: a JSON {what}; expected an object")
    return Row(file, number, value)


def _csv(file: Path, text: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    number = 0
    try:
        names = next(reader, [])
        if not names or len(set(names)) < len(names):
            raise DataError(f"{file}, row 0: the header is {names!r:.60}; expected unique names")
        for number, values in enumerate(reader, start=1):
            if len(values) != len(names):
                raise DataError(
                    f"{file}, row {number}: {len(values)} fields; expected {len(names)}, as in the "
                    "head"
                )
            yield Row(str(file), number, dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise DataError(f"{file}, row {number + 1}: not CSV ({error})") from None


def _parquet(file: Path) -> Iterator[Row]:
    try:
        import duckdb
    except ImportError:
        raise DataError(
            f"{file}: parquet needs duckdb, which is not installed; pip install 'pettingllms[data]'"
        ) from None
    if not file.is_file():
        raise DataError(f"{file}: cannot be read: no such file; give an existing file")
    number = 0
    try:
        found = duckdb.connect().execute("from read_parquet(?)", [_unglobbed(str(file))])
        names = [column[0] for column in found.description]
        while rows := found.fetchmany(NUM_AT_ONCE):
            for values in rows:
                number += 1
                yield Row(str(file), number, dict(zip(names, values, strict=True)))
    except duckdb.Error as error:
        what = str(error).splitlines()[0]
        raise DataError(f"{file}, row {number + 1}: not parquet ({what})") from None


def _unglobbed(path: str) -> str:
    """The path with glob characters escaped for duckdb."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in path)
