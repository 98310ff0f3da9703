"""Questions with short answers: `question`, and `answer` or `golden_answers`.

Natural Questions, HotpotQA (Yang et al., 2018) and similar search data sets use this format.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pettingllms.datasets.rows import Row, rows_of
from pettingllms.errors import DataError


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """One question and all accepted answers."""

    question: str
    answers: tuple[str, ...]
    at: int = 0
    """Its position in the source."""

    @property
    def id(self) -> str:
        """Its row, from 1."""
        return f"row {self.at + 1}"

    def key(self) -> str:
        """The question without spacing and case."""
        return " ".join(self.question.lower().split())


@lru_cache(maxsize=8)
def read_short_answers(source: str, part: str = "train") -> tuple[ShortAnswer, ...]:
    """All questions of a source. DataError names the file and the invalid row."""
    rows = rows_of(source, part, "short_answers")
    found = tuple(_read(row, at) for at, row in enumerate(rows))
    if not found:
        raise DataError(f"{source}: has no rows; expected rows with question and answer")
    return found


def _read(row: Row, at: int) -> ShortAnswer:
    question = row.text("question")
    golden = row.values.get("golden_answers")
    given = row.values.get("answer") if golden is None else golden
    answers: list[Any] = given if isinstance(given, list) else [given]
    if not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise row.wrong(f"'answer' must be a text or several, got {given!r:.40}")
    return ShortAnswer(question, tuple(one.strip() for one in answers), at)
