"""Train and test must not meet: a problem in both makes a figure worthless.

Two problems are the same if they ask the same, whatever their ids, spaces, punctuation and
capitals. Answers are not looked at: a question with another answer in each file is worse, not
better.
"""

from collections.abc import Iterable, Sequence

from pettingllms.datasets.problems import Problem
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed

NUM_SHOWN = 3


def overlap(train: Iterable[Problem], test: Iterable[Problem]) -> list[tuple[Problem, Problem]]:
    """Every problem of the second that the first has too, with its twin."""
    asked = {problem.key(): problem for problem in train}
    return [(asked[twin.key()], twin) for twin in test if twin.key() in asked]


def check_overlap(train: Iterable[Problem], test: Iterable[Problem]) -> None:
    """Raise DataError if a problem stands in both."""
    shared = overlap(train, test)
    if shared:
        shown = "; ".join(f"{ours.id} = {theirs.id}" for ours, theirs in shared[:NUM_SHOWN])
        more = "" if len(shared) <= NUM_SHOWN else f" and {len(shared) - NUM_SHOWN} more"
        raise DataError(
            f"{len(shared)} problems to test on are also trained on: {shown}{more}; remove them "
            "from one of the two files"
        )


def divided(
    problems: Sequence[Problem], test_share: float
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """To train and to test, by what is asked: twins within one file go the same way."""
    edge = int(test_share * 1000)
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[derive_seed("divide", problem.key()) % 1000 < edge].append(problem)
    return tuple(sides[0]), tuple(sides[1])
