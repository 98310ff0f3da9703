"""Fast pickling of batches: a few long arrays instead of many short ones.

A batch of a small model has thousands of short replies with several arrays each. Unpickled one by
one, they take about as long as a training step of a tiny model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pettingllms.learners.batches import Item, Pair, Unit, replies_of
from pettingllms.types.columns import Array, Column, column, cut

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


class Rows(list[Array]):
    """A list of arrays that is pickled as one array."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rows, (column(self),)


class Units(list[Unit]):
    """A batch to train on that is pickled as a few arrays."""

    def __reduce__(self) -> tuple[Any, ...]:
        items = replies_of(self)
        columns = [column([getattr(item, name) for item in items]) for name in ARRAYS]
        advantages = np.array([item.advantage for item in items], dtype=np.float64)
        images = [item.images for item in items] if any(item.images for item in items) else None
        stale = [item.num_stale for item in items]
        paired = [isinstance(unit, Pair) for unit in self]
        return _units, (columns, advantages, images, stale, paired)


def _rows(rows: Column) -> Rows:
    return Rows(cut(rows))


def _units(
    columns: Sequence[Column],
    advantages: Array,
    images: Any,
    stale: Sequence[int],
    paired: Sequence[bool],
) -> Units:
    rows = dict(zip(ARRAYS, map(cut, columns), strict=True))
    items = iter(
        [
            Item(
                advantage=advantage,
                images=images[at] if images else (),
                num_stale=stale[at],
                **dict(zip(rows, row, strict=True)),
            )
            for at, (advantage, *row) in enumerate(
                zip(advantages.tolist(), *rows.values(), strict=True)
            )
        ]
    )
    return Units(Pair(next(items), next(items)) if pair else next(items) for pair in paired)
