"""The problems of an environment, as tasks of two disjoint splits.

| data | problems |
| --- | --- |
| empty | arithmetic word problems, generated from each task's seed |
| `statements` | natural-language inference, generated from each task's seed |
| `sums` | sums of digits, generated from each task's seed |
| `reasoning_gym:NAME` | a generator of reasoning-gym, if it is installed |
| any other | the rows of a source, as in `sources` |
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from pettingllms.datasets import arithmetic, statements, sums
from pettingllms.datasets.catalog import load
from pettingllms.datasets.overlap import AskedT, check_overlap
from pettingllms.datasets.problems import Problem
from pettingllms.datasets.reasoning_gym import gym_problem
from pettingllms.datasets.seeded import NUM_MADE, SeededTasks, Split, halved_seed, of_half
from pettingllms.datasets.sources import parse_source
from pettingllms.datasets.store import is_test_only
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import Task

Make = Callable[[int, int], Problem]
MADE: dict[str, Make] = {"": arithmetic.make, "statements": statements.make, "sums": sums.make}
GYM = "reasoning_gym:"


class ProblemTasks:
    """The tasks of both splits, and the problem of each."""

    def __init__(
        self, data: str, test_data: str, num_tasks: int | None, num_steps: int, test_share: float
    ) -> None:
        self._data, self._num_tasks, self._num_steps = data, num_tasks, num_steps
        self._made = data in MADE or data.startswith(GYM)
        if data.startswith(GYM):
            gym_problem(data.removeprefix(GYM), 0)
        generated = self._made and not test_data
        self._split = ((), ()) if generated else _read(data, test_data, test_share)

    def tasks(self, part: Split) -> Sequence[Task]:
        """The tasks of a split."""
        problems = self._split[part == "test"][: self._num_tasks]
        if self._made and not problems:
            return SeededTasks(part, self._num_tasks or NUM_MADE, halved_seed)
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
    """Train and test problems. Generated problems are left out."""
    source = "" if data in MADE or data.startswith(GYM) else data
    return read_splits(source, test_data, load, lambda problem: _is_held_out(problem, test_share))


def read_splits(
    data: str,
    test_data: str,
    read: Callable[[str, Split], Sequence[AskedT]],
    is_held_out: Callable[[AskedT], bool],
) -> tuple[tuple[AskedT, ...], tuple[AskedT, ...]]:
    """What to train and to test on: two sources that share nothing, or one that is divided. Without
    `data`, and for a test set, there is nothing to train on."""
    if not data:
        return (), tuple(read(test_data, "test"))
    test_only = is_test_only(parse_source(data))
    if test_data:
        if test_only:
            raise DataError(
                f"env.data is '{data}', a test set without training problems; set env.data to a "
                f"training set, or leave env.test_data out to test on '{data}'"
            )
        train, test = read(data, "train"), read(test_data, "test")
        check_overlap(train, test)
        return tuple(train), tuple(test)
    if test_only:
        return (), tuple(read(data, "test"))
    found = [(one, is_held_out(one)) for one in read(data, "train")]
    train, test = ([one for one, held_out in found if held_out == side] for side in (False, True))
    if not train or not test:
        raise DataError(
            f"{data}: {len(train)} training and {len(test)} test problems are left; give more, "
            "another test_share, or a separate file as test_data"
        )
    return tuple(train), tuple(test)


def _is_held_out(problem: Problem, test_share: float) -> bool:
    return derive_seed("divide", problem.key()) % 1000 < int(test_share * 1000)


def divided(
    problems: Sequence[Problem], test_share: float
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Split problems by their question, so that duplicates are in the same split."""
    sides: tuple[list[Problem], list[Problem]] = ([], [])
    for problem in problems:
        sides[_is_held_out(problem, test_share)].append(problem)
    return tuple(sides[0]), tuple(sides[1])
