"""Questions that two data sets share: a test on what was trained on measures memory.

Two questions are the same if they differ only in spacing, case and punctuation. They are near if
one training question has at least half of the eight-word sequences of the test question; sequences
that many training questions have, such as instructions, do not count.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pettingllms.errors import DataError

NUM_SHOWN = 3
NUM_WORDS = 8
MIN_SHARE = 0.5
MAX_COMMON = 20
"""Sequences in more training questions than this are phrases of the set."""


class Asked(Protocol):
    """Anything that asks something."""

    @property
    def id(self) -> str:
        """Its id, for messages."""

    def key(self) -> str:
        """What it asks, without spacing, case and punctuation."""


AskedT = TypeVar("AskedT", bound=Asked)
Pairs = tuple[tuple[AskedT, AskedT], ...]


@dataclass(frozen=True, slots=True)
class Contamination:
    """What a test set shares with a training set, as pairs of training and test questions."""

    num_test: int
    same: "Pairs[Asked]"
    near: "Pairs[Asked]"
    """Pairs that are not the same."""


def overlap(train: Iterable[AskedT], test: Iterable[AskedT]) -> list[tuple[AskedT, AskedT]]:
    """Questions that are in both, as pairs."""
    asked = {problem.key(): problem for problem in train}
    return [(asked[twin.key()], twin) for twin in test if twin.key() in asked]


def check_overlap(train: Iterable[AskedT], test: Iterable[AskedT]) -> None:
    """Raise DataError if a question is in both."""
    shared = overlap(train, test)
    if shared:
        shown = "; ".join(f"{ours.id} = {theirs.id}" for ours, theirs in shared[:NUM_SHOWN])
        more = "" if len(shared) <= NUM_SHOWN else f" and {len(shared) - NUM_SHOWN} more"
        raise DataError(
            f"{len(shared)} test problems are also training problems: {shown}{more}; remove them "
            "from one of the two files"
        )


def contamination(train: Sequence[Asked], test: Sequence[Asked]) -> Contamination:
    """Compare a test set with a training set."""
    same = overlap(train, test)
    known = {id(twin) for _, twin in same}
    places: dict[int, list[int]] = defaultdict(list)
    for at, problem in enumerate(train):
        for sequence in _sequences(problem):
            places[sequence].append(at)
    near = tuple(
        (train[best], problem)
        for problem in test
        if id(problem) not in known and (best := _nearest(_sequences(problem), places)) is not None
    )
    return Contamination(len(test), tuple(same), near)


def _sequences(problem: Asked) -> set[int]:
    words = problem.key().split()
    return {
        hash(tuple(words[at : at + NUM_WORDS])) for at in range(max(0, len(words) - NUM_WORDS + 1))
    }


def _nearest(sequences: set[int], places: dict[int, list[int]]) -> int | None:
    """The training question with most of the sequences, if it has enough."""
    common = {one for one in sequences if len(places.get(one, ())) > MAX_COMMON}
    counts = Counter(at for one in sequences - common for at in places.get(one, ()))
    if not counts:
        return None
    at, count = counts.most_common(1)[0]
    return at if count >= MIN_SHARE * len(sequences - common) else None
