"""Questions with short answers, as JSON lines: `question`, and `answer` or `golden_answers`.

Natural Questions, HotpotQA (Yang et al., 2018) and similar search data sets use this format.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pettingllms.errors import DataError


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """One question and all accepted answers."""

    question: str
    answers: tuple[str, ...]


@lru_cache(maxsize=8)
def read_short_answers(file: str) -> tuple[ShortAnswer, ...]:
    """All questions of a file. DataError names the file and the invalid row."""
    path = Path(file)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a UTF-8 text file") from error
    rows = tuple(_row(path, at, line) for at, line in enumerate(lines, 1) if line.strip())
    if not rows:
        raise DataError(f"{path}: expected JSON lines with question and answer, got none")
    return rows


def _row(path: Path, at: int, line: str) -> ShortAnswer:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, row {at}: no JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}, row {at}: expected an object, got {type(row).__name__}")
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{path}, row {at}: 'question' must be a text, got {question!r:.40}")
    golden = row.get("golden_answers")
    given = row.get("answer") if golden is None else golden
    answers: list[Any] = given if isinstance(given, list) else [given]
    if not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise DataError(f"{path}, row {at}: 'answer' must be a text or several, got {given!r:.40}")
    return ShortAnswer(question.strip(), tuple(one.strip() for one in answers))
