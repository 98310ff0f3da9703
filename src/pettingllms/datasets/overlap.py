"""Checks that train and test problems do not overlap.

Two problems are equal if their questions are, ignoring ids, whitespace, punctuation and case.
Answers are ignored: the same question with two answers is also an error.
"""

from collections.abc import Iterable, Sequence

from pettingllms.datasets.problems import Problem
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed

NUM_SHOWN = 3


def overlap(train: Iterable[Problem], test: Iterable[Problem]) -> list[tuple[Problem, Problem]]:
    """Problems that are in both, as pairs."""
    asked = {problem.key(): problem for problem in train}
    return [(asked[twin.key()], twin) for twin in test if twin.key() in asked]


def check_overlap(train: Iterable[Problem], test: Iterable[Problem]) -> None:
    """Raise DataError if a problem is in both."""
    shared = overlap(train, test)
    if shared:
        shown = "; ".join(f"{ours.id} = {theirs.id}" for ours, theirs in shared[:NUM_SHOWN])
        more = "" if len(shared) <= NUM_SHOWN else f" and {len(shared) - NUM_SHOWN} more"
        raise DataError(
            f"{len(shared)} test problems are also training problems: {shown}{more}; remove them "
            "from one of the two files"
        )


def divided(
    problems: Sequence[Problem], test_share: float
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Split problems by their question, so that duplicates are in the same split."""
    edge = int(test_share * 1000)
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[derive_seed("divide", problem.key()) % 1000 < edge].append(problem)
    return tuple(sides[0]), tuple(sides[1])
