"""The questions of any source, whatever environment reads it, to compare or to show them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from pettingllms.datasets.catalog import load
from pettingllms.datasets.code_formats import FORMATS, read_problems
from pettingllms.datasets.overlap import Asked
from pettingllms.datasets.rows import Row, rows_of
from pettingllms.datasets.short_answers import read_short_answers
from pettingllms.datasets.sources import Source, parse_source
from pettingllms.datasets.text_to_sql import read_questions
from pettingllms.errors import DataError

READERS: Mapping[str, Callable[[str, Any], Sequence[Asked]]] = {
    "problems": load,
    "code": read_problems,
    "short_answers": read_short_answers,
    "sql": read_questions,
}
"""Functions that read the questions of a source, by kind."""


def kind_of(text: str, part: str) -> str:
    """The kind of a source: from the table, or from the fields of its first row."""
    source = parse_source(text)
    if source.published is not None:
        return source.published.kind
    if source.format:
        return "problems"
    fields = first_rows(source, part, "problems", 1)[0].values
    if FORMATS.keys() & fields.keys():
        return "code"
    if "db_id" in fields:
        return "sql"
    return "short_answers" if "golden_answers" in fields else "problems"


def questions_of(text: str, part: str) -> Sequence[Asked]:
    """What a source asks; `part` is train or test."""
    kind = kind_of(text, part)
    if kind not in READERS:
        raise DataError(f"'{text}' has {kind}, not questions; only questions are compared")
    return READERS[kind](text, part)


def first_rows(source: Source, part: str, kind: str, count: int) -> list[Row]:
    """The first rows of a source."""
    rows = list(islice(rows_of(source.text, part, kind), count))
    if not rows:
        raise DataError(f"'{source.text}' has no rows; give another file or selection")
    return rows
