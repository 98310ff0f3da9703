"""Many short arrays as a few long ones, which are pickled and stored quickly."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
MISSING = -1
"""Instead of a length, for a missing array."""


class Column(NamedTuple):
    """Concatenated arrays with their lengths."""

    joined: Array | None
    """None if all arrays are missing."""
    lengths: Array


def column(arrays: Sequence[Array | None]) -> Column:
    """The arrays as a column."""
    lengths = [MISSING if array is None else len(array) for array in arrays]
    there = [array for array in arrays if array is not None]
    return Column(np.concatenate(there) if there else None, np.array(lengths, dtype=np.int64))


def cut(column: Column) -> list[Any]:
    """The single arrays, as views of one buffer."""
    found: list[Any] = []
    start = 0
    for length in column.lengths.tolist():
        if length == MISSING or column.joined is None:
            found.append(None)
            continue
        found.append(column.joined[start : start + length])
        start += length
    return found
