"""The problems of an environment, as tasks of two disjoint splits.

| data | problems |
| --- | --- |
| empty | arithmetic word problems, generated from each task's seed |
| `statements` | natural-language inference, generated from each task's seed |
| `reasoning_gym:NAME` | a generator of reasoning-gym, if it is installed |
| `NAME:FILE` | a file of a published data set |
| `NAME` | the same from the hub |
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from pettingllms.datasets import arithmetic, statements
from pettingllms.datasets.catalog import load
from pettingllms.datasets.problems import Problem
from pettingllms.datasets.reasoning_gym import gym_problem
from pettingllms.datasets.seeded import NUM_MADE, SeededTasks, Split, halved_seed, of_half
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import Task

Make = Callable[[int, int], Problem]
MADE: dict[str, Make] = {"": arithmetic.make, "statements": statements.make}
GYM = "reasoning_gym:"


class ProblemTasks:
    """The tasks of both splits, and the problem of each."""

    def __init__(
        self, data: str, test_data: str, num_tasks: int | None, num_steps: int, test_share: float
    ) -> None:
        self._data, self._num_tasks, self._num_steps = data, num_tasks, num_steps
        made = data in MADE or data.startswith(GYM)
        if made and test_data:
            raise DataError(f"test_data is '{test_data}', but problems are generated; leave it out")
        if data.startswith(GYM):
            gym_problem(data.removeprefix(GYM), 0)
        self._split = None if made else _read(data, test_data, test_share)

    def tasks(self, part: Split) -> Sequence[Task]:
        """The tasks of a split."""
        if self._split is None:
            return SeededTasks(part, self._num_tasks or NUM_MADE, halved_seed)
        problems = self._split[part == "test"][: self._num_tasks]
        return [Task(f"{part}-{problem.id}", problem.to_data()) for problem in problems]

    def problem(self, task: Task) -> Problem:
        """The problem of a task. Generated problems with the same short form are in one split, as
        roles may see only that form."""
        if task.data:
            return Problem.from_data(task.id, task.data)
        return of_half(
            task.seed % 2,
            lambda attempt: self._make(derive_seed("problem", task.seed, attempt)),
            lambda problem: problem.short or problem.key(),
        )

    def _make(self, seed: int) -> Problem:
        if self._data.startswith(GYM):
            return gym_problem(self._data.removeprefix(GYM), seed)
        return MADE[self._data](seed, self._num_steps)


@lru_cache(maxsize=8)
def _read(
    data: str, test_data: str, test_share: float
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Train and test problems, from two disjoint files or from one file that is split."""
    if test_data:
        train, test = load(data, "train"), load(test_data, "test")
        check_overlap(train, test)
        return train, test
    train, test = divided(load(data, "train"), test_share)
    if not train or not test:
        raise DataError(
            f"{data}: {len(train)} training and {len(test)} test problems are left; give more, "
            "another test_share, or a separate file as test_data"
        )
    return train, test


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
