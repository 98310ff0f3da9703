"""Whether two result sets are the same, decided outside the sandbox.

Names of columns do not count, their order does. The order of rows counts where the question asks
for one. Whole numbers are equal exactly, and 3 is 3.0; others within a tolerance; text is equal
letter by letter.
"""

import math
from collections.abc import Sequence

from pettingllms.envs.sql.database import Cell, Result

TOLERANCE = 1e-6
MAX_EXACT = 2.0**53
"""Above it every float is whole, however it was rounded."""
Row = Sequence[Cell]


def share_right(given: Result, expected: Result, ordered: bool) -> float:
    """1 if the results are the same and only then; else up to 0.9 by the rows that they share."""
    if given.error is not None or expected.error is not None:
        return 0.0
    num_common = _num_common(given.rows, expected.rows)
    if num_common == len(given.rows) == len(expected.rows):
        if not ordered or all(map(_same_row, given.rows, expected.rows)):
            return float(_widths(given) == _widths(expected))
        return 0.9
    return 0.9 * 2 * num_common / (len(given.rows) + len(expected.rows))


def _num_common(given: Sequence[Row], expected: Sequence[Row]) -> int:
    left = list(given)
    num_common = 0
    for row in expected:
        at = next((at for at, other in enumerate(left) if _same_row(row, other)), None)
        if at is not None:
            del left[at]
            num_common += 1
    return num_common


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
