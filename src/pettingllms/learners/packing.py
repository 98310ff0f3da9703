"""Packing: the replies of a minibatch as passes of at most `learner.max_batch_tokens`, by rank.

FSDP exchanges shards in every pass, so ranks must make the same number of passes, and each waits
for the slowest. A pass may have no replies on some rank.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from pettingllms.learners.batches import Item, UnitT, replies_of
from pettingllms.learners.forest import Keys, common_prefix, ordered

KeysOf = Callable[[Item], Keys]
"""The keys of a prompt with its reply."""
CUT_WINDOW = 0.1
"""Share of a pass in which a cheap cut is looked for."""


def pack_rows(items: Sequence[UnitT], max_tokens: int, num_ranks: int) -> list[list[list[UnitT]]]:
    """The passes of each rank for padded rows, the same number for every rank.

    Items are sorted by length and dealt to the ranks in turn: in one pass all ranks have replies of
    similar length, which also keeps padding small. The longest come first, so that running out of
    memory shows at once.

    A pass of n items has n times the tokens of its longest item, at most `max_tokens` unless a
    single item is longer.
    """
    longest_first = sorted(items, key=lambda item: item.num_tokens, reverse=True)
    ranks: list[list[list[UnitT]]] = [[] for _ in range(num_ranks)]
    start = 0
    while start < len(longest_first):
        rows = max(1, max_tokens // longest_first[start].num_tokens)
        dealt = longest_first[start : start + rows * num_ranks]
        for rank, passes in enumerate(ranks):
            passes.append(dealt[rank::num_ranks])
        start += len(dealt)
    return ranks


def pack_trees(
    units: Sequence[UnitT], max_tokens: int, num_ranks: int, keys_of: KeysOf
) -> list[list[list[UnitT]]]:
    """The passes of each rank for token trees, the same number for every rank.

    Units are put in depth-first order, in which those with a common prefix are adjacent, and cut
    into passes of about equal size. A cut inside a tree repeats the prefix before it, so passes are
    as few as `max_tokens` allows. The largest come first, so that running out of memory shows at
    once.
    """
    if not units:
        return [[] for _ in range(num_ranks)]
    line = _line_up(units, keys_of)
    fewest = len(_cuts(line, max_tokens, len(units)))
    cuts = _balanced_cuts(line, max_tokens, -(-fewest // num_ranks) * num_ranks)
    passes = [line.units[start:end] for start, end in cuts]
    sizes = [line.size(start, end) for start, end in cuts]
    largest_first = [passes[at] for at in np.argsort(sizes, kind="stable")[::-1]]
    largest_first += [[] for _ in range(-len(passes) % num_ranks)]
    return [largest_first[rank::num_ranks] for rank in range(num_ranks)]


@dataclass(frozen=True, slots=True, eq=False)
class _Line(Generic[UnitT]):
    """Units in depth-first order with the tokens that they add."""

    units: list[UnitT]
    shared: list[int]
    """Length of the prefix shared with the unit before."""
    ends: list[int]
    """Distinct tokens up to and including each unit, if all are in one pass."""

    def size(self, start: int, end: int) -> int:
        """Distinct tokens of a pass."""
        before = self.ends[start - 1] if start else 0
        return self.ends[end - 1] - before + self.shared[start]

    def cut(self, start: int, max_tokens: int) -> int:
        """The end of the pass that starts there: the last that fits, or a cheaper one nearby."""
        fits = max_tokens + (self.ends[start - 1] if start else 0) - self.shared[start]
        end = max(start + 1, bisect_left(self.ends, fits + 1, lo=start))
        if end == len(self.units):
            return end
        first = bisect_left(self.ends, fits - CUT_WINDOW * max_tokens, lo=start) + 1
        candidates = range(end, min(max(start + 1, first), end) - 1, -1)
        return min(candidates, key=self.shared.__getitem__)


def _line_up(units: Sequence[UnitT], keys_of: KeysOf) -> _Line[UnitT]:
    """Keys are made when they are compared: those of a whole batch take twice its memory."""
    replies = [replies_of([unit]) for unit in units]
    line: _Line[UnitT] = _Line([], [], [])
    num_tokens = 0
    for at, shared in ordered(len(units), lambda at: keys_of(replies[at][0])):
        num_tokens += _num_added(shared, replies[at], keys_of)
        line.units.append(units[at])
        line.shared.append(shared)
        line.ends.append(num_tokens)
    return line


def _num_added(shared: int, replies: Sequence[Item], keys_of: KeysOf) -> int:
    """Tokens that a unit adds; replies of a unit share the prompt with its first."""
    added = replies[0].num_tokens - shared
    if len(replies) > 1:
        first, *others = map(keys_of, replies)
        added += sum(len(other) - common_prefix(first, other) for other in others)
    return added


def _balanced_cuts(line: _Line[UnitT], max_tokens: int, num_passes: int) -> list[tuple[int, int]]:
    """At most `num_passes` passes of about equal size."""
    low, high = 1, max_tokens
    best: list[tuple[int, int]] = []
    while low <= high:
        size = (low + high) // 2
        found = _cuts(line, size, num_passes)
        if found:
            best, high = found, size - 1
        else:
            low = size + 1
    return best


def _cuts(line: _Line[UnitT], max_tokens: int, num_passes: int) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    start = 0
    while start < len(line.units):
        if len(cuts) == num_passes:
            return []
        end = line.cut(start, max_tokens)
        cuts.append((start, end))
        start = end
    return cuts
