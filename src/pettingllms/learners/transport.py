"""Replies on their way between processes: a few long arrays in place of many short ones.

A batch of a small model is thousands of replies of a few tokens, each with arrays of its own. One
by one they take about as long to unpickle as a tiny model takes to learn from them.
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
"""The fields of a reply that hold a number for each token."""
NOTHING = -1
"""In the place of a length, where there is no array."""


class Column(NamedTuple):
    """Arrays end to end."""

    joined: Array | None
    """None if there are none."""
    lengths: Array


class Rows(list[Array]):
    """A list of arrays that travels as one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rows, (_column(self),)


class Units(list[Unit]):
    """What is learnt from, in a form that travels fast."""

    def __reduce__(self) -> tuple[Any, ...]:
        items = replies_of(self)
        columns = [_column([getattr(item, name) for item in items]) for name in ARRAYS]
        advantages = np.array([item.advantage for item in items], dtype=np.float64)
        images = [item.images for item in items] if any(item.images for item in items) else None
        return _units, (columns, advantages, images, [isinstance(unit, Pair) for unit in self])


def _column(arrays: Sequence[Array | None]) -> Column:
    lengths = [NOTHING if array is None else len(array) for array in arrays]
    there = [array for array in arrays if array is not None]
    return Column(np.concatenate(there) if there else None, np.array(lengths, dtype=np.int64))


def _cut(column: Column) -> list[Any]:
    """The arrays again: parts of one memory, that nobody may write to."""
    found: list[Any] = []
    start = 0
    for length in column.lengths.tolist():
        if length == NOTHING or column.joined is None:
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
