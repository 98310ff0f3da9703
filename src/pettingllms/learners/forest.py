"""Forests of token trees: sequences with a common prefix share its tokens.

A batch of turns repeats itself: replies to one prompt, branches of a tree rollout, and turns whose
prompt contains the turns before them. A forest holds each distinct prefix once. Its tokens form one
row in depth-first order, so the descendants of a token directly follow it: token j is an ancestor
of token i, or token i itself, if and only if `j <= i < end[j]`.

A run is the part of a sequence that no earlier sequence had. It is a chain, so its tokens attend to
the sequence that it belongs to, and a forest needs at most one run per sequence.

N distinct tokens.
"""

# ruff: noqa: N802

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
"""A sequence of tokens. Equal keys at equal depths after equal prefixes are one token."""
Places = npt.NDArray[np.int64]
"""Positions in a forest's row."""
KEY_BYTES = 8
MAX_SORTED = 2**20
"""Tokens that are compared at once, of all sequences together."""
MIN_PART = 256
"""The same of one sequence, however many there are."""
ENDED = -1
"""In place of a position: equal sequences have no tokens left to compare."""


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent tokens of the row that one sequence added."""

    start: int
    sequence: int
    """Index of a sequence that ends with the run."""
    depth: int
    """Number of tokens before the run in its sequence."""
    length: int


@dataclass(frozen=True, eq=False)
class Forest:
    """The distinct tokens of sequences in one row."""

    places: list[Places]
    """For each sequence the positions of its tokens in the row."""
    runs: list[Run]
    num_tokens: int

    @cached_property
    def depth_N(self) -> Places:
        """Number of ancestors of each token: its position in its sequence."""
        depths = [np.arange(run.depth, run.depth + run.length) for run in self.runs]
        return np.concatenate(depths) if depths else np.zeros(0, np.int64)

    @cached_property
    def end_N(self) -> Places:
        """The position after each token's last descendant."""
        end = np.arange(1, self.num_tokens + 1)
        for run in self.runs:
            path = self.places[run.sequence][: run.depth]
            end[path] = np.maximum(end[path], run.start + run.length)
            end[run.start : run.start + run.length] = run.start + run.length
        return end

    def take(self, sequences: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """One number per token of each sequence, as one number per token of the row."""
        parts = [sequences[run.sequence][run.depth :][: run.length] for run in self.runs]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def make_forest(sequences: Sequence[Keys]) -> Forest:
    """The forest of sequences; equal sequences are read once."""
    places: list[Places] = [np.zeros(0, np.int64)] * len(sequences)
    runs: list[Run] = []
    last = np.zeros(0, np.int64)
    num_tokens = 0
    for at, shared in ordered(len(sequences), sequences.__getitem__):
        length = len(sequences[at]) - shared
        last = np.concatenate([last[:shared], np.arange(num_tokens, num_tokens + length)])
        places[at] = last
        if length:
            runs.append(Run(num_tokens, at, shared, length))
            num_tokens += length
    return Forest(places, runs, num_tokens)


def ordered(num_sequences: int, keys: Callable[[int], Keys]) -> Iterator[tuple[int, int]]:
    """Indices of sequences in depth-first order, each with the length of the prefix that it shares
    with the one before it, which is the longest that it shares with any before it."""
    last: Keys | None = None
    for at in _sorted(num_sequences, keys):
        sequence = keys(at)
        yield at, 0 if last is None else common_prefix(last, sequence)
        last = sequence


def _sorted(num_sequences: int, keys: Callable[[int], Keys]) -> Iterator[int]:
    """Indices of sequences in the order of their tokens; of equal ones, the first comes first.

    Sequences are compared part by part, and only those whose parts so far are equal. So the memory
    is that of a part per sequence, not of all tokens of a batch."""
    pending = [(list(range(num_sequences)), 0)]
    while pending:
        group, start = pending.pop()
        if len(group) <= 1 or start == ENDED:
            yield from group
            continue
        size = max(MIN_PART, MAX_SORTED // len(group))
        parts = {at: _sortable(keys(at)[start : start + size]) for at in group}
        group.sort(key=parts.__getitem__)
        groups = [
            (list(same), start + size if len(part) == size * KEY_BYTES else ENDED)
            for part, same in groupby(group, parts.__getitem__)
        ]
        pending += reversed(groups)


def common_prefix(one: Keys, other: Keys) -> int:
    """Number of equal leading tokens."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def _sortable(sequence: Keys) -> bytes:
    """Bytes whose order is that of the sequence's tokens."""
    unsigned = sequence.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    return unsigned.astype(">u8").tobytes()
