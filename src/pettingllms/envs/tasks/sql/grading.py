"""Compare two result sets, outside the sandbox.

Column names do not count, but their order does. Row order counts where the question asks for one.
Integers must be equal, and 3 equals 3.0; other numbers within a tolerance; text exactly.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from pettingllms.envs.tasks.sql.database import Cell, Result

TOLERANCE = 1e-6
MAX_EXACT = 2.0**53
"""Above it, every float is an integer because of rounding."""
MAX_TRIES = 40_000
"""Maximum number of row pairs that are compared."""
Row = Sequence[Cell]


def share_right(given: Result, expected: Result, ordered: bool) -> float:
    """1 if and only if the results are equal; otherwise up to 0.9, by the rows that they share."""
    if given.error is not None or expected.error is not None:
        return 0.0
    num_common = _num_common(given.rows, expected.rows)
    if num_common == len(given.rows) == len(expected.rows):
        if not ordered or all(map(_same_row, given.rows, expected.rows)):
            return float(_widths(given) == _widths(expected))
        return 0.9
    return 0.9 * 2 * num_common / (len(given.rows) + len(expected.rows))


def _num_common(given: Sequence[Row], expected: Sequence[Row]) -> int:
    """Number of common rows, each counted once. Rows that are equal cell by cell are matched
    first. The rest can match only within the tolerance, and is compared within groups of the
    same text."""
    own, others = _by_text(given), _by_text(expected)
    equal = {text: min(len(rows), len(others.get(text, ()))) for text, rows in own.items()}
    left = _by_rest(_rest(own, equal)), _by_rest(_rest(others, equal))
    near = (_num_near(rows, left[1].get(rest, [])) for rest, rows in left[0].items())
    return sum(equal.values()) + sum(near)


def _by_text(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by a text that equal rows share. Queries choose their rows and could choose
    thousands with colliding hashes; they cannot do so for the hash of a text."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(repr([_plainly(cell) for cell in row]), []).append(row)
    return found


def _plainly(cell: Cell) -> Cell:
    """3.0 as 3, since they are equal."""
    return int(cell) if isinstance(cell, float) and _is_whole(cell) else cell


def _rest(rows: Mapping[str, Sequence[Row]], taken: Mapping[str, int]) -> Iterable[Row]:
    """The rows that remain when this many of each text are taken."""
    return (row for text, same in rows.items() for row in same[taken.get(text, 0) :])


def _by_rest(rows: Iterable[Row]) -> dict[Row, list[Row]]:
    """Group rows by their cells other than numbers."""
    found: dict[Row, list[Row]] = {}
    for row in rows:
        rest = tuple(None if isinstance(cell, int | float) else (cell, type(cell)) for cell in row)
        found.setdefault(rest, []).append(row)  # type: ignore[arg-type]
    return found


def _num_near(given: list[Row], expected: list[Row]) -> int:
    """Number of rows that can be paired. Large sets compare only neighbors in sorted order,
    which may miss pairs with one close and one distant number."""
    if len(given) * len(expected) > MAX_TRIES:
        return _num_near_in_order(sorted(given), sorted(expected))  # type: ignore[type-var]
    left, num_near = list(given), 0
    for row in expected:
        at = next((at for at, other in enumerate(left) if _same_row(row, other)), None)
        if at is not None:
            del left[at]
            num_near += 1
    return num_near


def _num_near_in_order(given: Sequence[Row], expected: Sequence[Row]) -> int:
    one = other = num_near = 0
    while one < len(given) and other < len(expected):
        if _same_row(given[one], expected[other]):
            one, other, num_near = one + 1, other + 1, num_near + 1
        elif tuple(given[one]) < tuple(expected[other]):
            one += 1
        else:
            other += 1
    return num_near


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(map(_same_cell, one, other))


def _same_cell(one: Cell, other: Cell) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        if _is_whole(one) and _is_whole(other):
            return one == other
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(other) and one == other


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or (number.is_integer() and abs(number) < MAX_EXACT)


def _widths(result: Result) -> int:
    return len(result.columns)
