"""Rows of a data file: JSON lines, a JSON list, CSV or Parquet, plain or gzipped.

What a row means is its reader's affair. What cannot be read at all is said here, with file and row.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pettingllms.errors import DataError

Row = Mapping[str, Any]
FORMS = ".jsonl, .json, .csv, .parquet, each but the last also with .gz"


def read_rows(path: str | Path) -> Iterator[tuple[int, Row]]:
    """Each row with its number: the line of a text file, the place in another, from 1."""
    path = Path(path)
    form = next((s for s in reversed(path.suffixes) if s != ".gz"), "")
    if form == ".parquet":
        yield from enumerate(_parquet(path), start=1)
        return
    if form not in (".jsonl", ".json", ".csv"):
        raise DataError(f"{path}: a name that ends in {path.suffix!r}; give one of {FORMS}")
    text = _text(path)
    if form == ".csv":
        rows = csv.DictReader(io.StringIO(text), strict=True)
        try:
            for row in rows:
                yield rows.line_num, row
        except csv.Error as error:
            bad_row(path, rows.line_num, f"this is not CSV: {error}")
    elif form == ".json":
        yield from _json_list(path, text)
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, _row(path, number, _json(path, number, line))


def bad_row(path: str | Path, number: int, what: str) -> NoReturn:
    """Refuse a row, by file and number."""
    raise DataError(f"{path}, row {number}: {what}")


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        bad_row(path, number, f"this is not UTF-8: {error.reason}")
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: the file cannot be read: {error}") from None


def _json(path: Path, number: int, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        bad_row(path, number, f"this is not JSON: {error}")


def _row(path: Path, number: int, value: object) -> Row:
    if not isinstance(value, dict):
        bad_row(path, number, f"a {type(value).__name__}; a row is an object with named fields")
    return value


def _json_list(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    values = _json(path, 1, text)
    if not isinstance(values, list):
        bad_row(path, 1, f"a {type(values).__name__}; the file must hold one list of objects")
    for number, value in enumerate(values, start=1):
        yield number, _row(path, number, value)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"{path}: Parquet needs pyarrow; pip install pyarrow") from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=64):
            yield from batch.to_pylist()
    except (OSError, ArrowException) as error:
        raise DataError(f"{path}: the file cannot be read: {error}") from None
