"""Loaders of problems by format, and the problems of a source."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from pettingllms.datasets import math_sets as maths
from pettingllms.datasets import nli as inference
from pettingllms.datasets.problems import Problem
from pettingllms.datasets.rows import Row, rows_of
from pettingllms.datasets.sources import PLAIN, source_of
from pettingllms.errors import DataError

Part = Literal["train", "test"]
LOADERS: Mapping[str, Callable[[Row], Problem]] = {
    "gsm8k": maths.gsm8k,
    "math": maths.math,
    "aime": maths.aime,
    "olympiadbench": maths.olympiadbench,
    "dapo_math": maths.dapo_math,
    "svamp": maths.svamp,
    "anli": inference.anli,
    PLAIN: maths.plain,
}
"""Functions that parse a row, by the format of the data set."""
FIELDS: tuple[tuple[tuple[str, ...], Callable[[Row], Problem]], ...] = (
    (("Body", "Question", "Answer"), maths.svamp),
    (("prompt", "reward_model"), maths.dapo_math),
    (("question", "final_answer"), maths.olympiadbench),
    (("context|premise", "hypothesis|statement"), inference.anli),
    (("question|problem|prompt", "answer"), maths.plain),
    (("problem", "solution"), maths.math),
    (("Problem", "Answer"), maths.aime),
)
"""How rows of other sets are recognized: fields that a row has, `|` between alternatives."""
REPEATED = {"dapo_math"}
"""Data sets that repeat every problem; duplicates are removed."""


def load(source: str, part: Part = "train") -> tuple[Problem, ...]:
    """The problems of a source. Nothing is downloaded."""
    format = source_of(source, "problems").format  # noqa: A001 - its name in the table
    rows = rows_of(source, part, "problems")
    found = ((LOADERS[format] if format else recognized(row))(row) for row in rows)
    problems = tuple(_each_once(found) if format in REPEATED else found)
    if not problems:
        raise DataError(f"{source}: has no rows; expected at least one problem")
    return problems


def recognized(row: Row) -> Callable[[Row], Problem]:
    """The function that parses a row of an unnamed data set, by its fields."""
    answer = row.values.get("answer")
    for fields, loader in FIELDS:
        if all(row.has(row.first(*names.split("|"))) for names in fields):
            is_gsm8k = loader is maths.plain and isinstance(answer, str) and maths.HASHES in answer
            return maths.gsm8k if is_gsm8k and row.has("question") else loader
    raise row.wrong(
        f"its fields are {', '.join(sorted(map(str, row.values)))}; expected a question and an "
        "answer; name the columns in the source: ?question=FIELD&answer=FIELD"
    )


def _each_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The first occurrence of every problem."""
    seen = set()
    for problem in problems:
        if (key := problem.key()) not in seen:
            seen.add(key)
            yield problem
