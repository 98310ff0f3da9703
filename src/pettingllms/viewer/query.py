"""Questions to the table: which episodes, in which order, which page of them."""

from dataclasses import dataclass
from typing import Any

from pettingllms.errors import ConfigError, nearest
from pettingllms.viewer.index import Index, as_row

SORTS = (
    "step", "id", "task", "kind", "success", "reward", "steps", "replies", "tokens", "failed",
    "advantage",
)  # fmt: skip
OUTCOMES: dict[str, str] = {
    "reached": "success = 1",
    "missed": "success = 0",
    "split": "success > 0 AND success < 1",
    "failed": "failure IS NOT NULL",
    "none": "success IS NULL",
}
MAX_PAGE = 500
NO_STEP = 2**62


@dataclass(frozen=True, slots=True)
class Question:
    """What the page asks for."""

    text: str = ""
    """Words that stand in the episode, the last one perhaps cut short."""
    outcome: str = ""
    kind: str = ""
    first_step: int = 0
    last_step: int = NO_STEP
    sort: str = "step"
    descending: bool = True
    start: int = 0
    count: int = 50


def answer(index: Index, question: Question) -> dict[str, Any]:
    """A page of rows, and how many rows there are."""
    if question.sort not in SORTS:
        raise ConfigError("sort", [nearest(question.sort, SORTS)])
    where, values = _conditions(question)
    count = max(1, min(question.count, MAX_PAGE))
    # Names and signs in these are ours; what was asked for stands in `values`.
    count_all = f"SELECT COUNT(*) FROM episodes {where}"  # noqa: S608
    page = f"SELECT n FROM episodes {where} ORDER BY {_order(question)} LIMIT ? OFFSET ?"  # noqa: S608
    with index.open() as db:
        total = db.execute(count_all, values).fetchone()[0]
        found = db.execute(page, [*values, count, question.start]).fetchall()
        ask = "SELECT * FROM episodes WHERE n = ?"  # a sort carries numbers, not whole rows
        rows = [shown_row(as_row(db.execute(ask, (row["n"],)).fetchone())) for row in found]
    return {"total": total, "start": question.start, "rows": rows}


def _order(question: Question) -> str:
    down = "DESC" if question.descending else "ASC"
    if question.sort == "step":
        return f"step {down}, start {'ASC' if question.descending else 'DESC'}"
    return f"{question.sort} IS NULL, {question.sort} {down}, step DESC, start"


def shown_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what the page has no use for."""
    return {name: value for name, value in row.items() if name not in ("path", "start", "size")}


def neighbours(index: Index, n: int) -> dict[str, int | None]:
    """The rows before and after one, as they were read."""
    with index.open() as db:
        before = db.execute("SELECT MAX(n) FROM episodes WHERE n < ?", (n,)).fetchone()[0]
        after = db.execute("SELECT MIN(n) FROM episodes WHERE n > ?", (n,)).fetchone()[0]
    return {"before": before, "after": after}


def _conditions(question: Question) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if words := _match(question.text):
        parts.append("n IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(words)
    if question.outcome:
        if question.outcome not in OUTCOMES:
            raise ConfigError("outcome", [nearest(question.outcome, OUTCOMES)])
        parts.append(OUTCOMES[question.outcome])
    if question.kind:
        parts.append("kind = ?")
        values.append(question.kind)
    if question.first_step > 0:
        parts.append("step >= ?")
        values.append(question.first_step)
    if question.last_step < NO_STEP:
        parts.append("step <= ?")
        values.append(question.last_step)
    return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _match(text: str) -> str:
    """Words as FTS5 reads them: each in quotes, so that none is an operator."""
    words = [word.replace('"', '""') for word in text.replace("\0", " ").split()]
    return " ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}" *']) if words else ""
