"""Fast pickling of batches: a few long arrays instead of many short ones.

A batch of a small model has thousands of short replies with several arrays each. Unpickled one by
one, they take about as long as a training step of a tiny model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pettingllms.learners.batches import Item, Pair, Unit, replies_of

Array = np.ndarray[Any, Any]
ARRAYS = (
    "prompt_ids",
    "response_ids",
    "logprobs",
    "advantages",
    "values",
    "targets",
    "reference",
)
"""The fields of a reply with one number per token."""
MISSING = -1
"""Instead of a length, for a missing array."""


class Column(NamedTuple):
    """Concatenated arrays with their lengths."""

    joined: Array | None
    """None if all arrays are missing."""
    lengths: Array


class Rows(list[Array]):
    """A list of arrays that is pickled as one array."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rows, (_column(self),)


class Units(list[Unit]):
    """A batch to train on that is pickled as a few arrays."""

    def __reduce__(self) -> tuple[Any, ...]:
        items = replies_of(self)
        columns = [_column([getattr(item, name) for item in items]) for name in ARRAYS]
        advantages = np.array([item.advantage for item in items], dtype=np.float64)
        images = [item.images for item in items] if any(item.images for item in items) else None
        return _units, (columns, advantages, images, [isinstance(unit, Pair) for unit in self])


def _column(arrays: Sequence[Array | None]) -> Column:
    lengths = [MISSING if array is None else len(array) for array in arrays]
    there = [array for array in arrays if array is not None]
    return Column(np.concatenate(there) if there else None, np.array(lengths, dtype=np.int64))


def _cut(column: Column) -> list[Any]:
    """The single arrays, as read-only views of one buffer."""
    found: list[Any] = []
    start = 0
    for length in column.lengths.tolist():
        if length == MISSING or column.joined is None:
            found.append(None)
            continue
        found.append(column.joined[start : start + length])
        start += length
    return found


def _rows(column: Column) -> Rows:
    return Rows(_cut(column))


def _units(
    columns: Sequence[Column], advantages: Array, images: Any, paired: Sequence[bool]
) -> Units:
    cut = dict(zip(ARRAYS, map(_cut, columns), strict=True))
    items = iter(
        [
            Item(
                advantage=advantage,
                images=images[at] if images else (),
                **dict(zip(cut, row, strict=True)),
            )
            for at, (advantage, *row) in enumerate(
                zip(advantages.tolist(), *cut.values(), strict=True)
            )
        ]
    )
    return Units(Pair(next(items), next(items)) if pair else next(items) for pair in paired)
