"""Where an environment's problems come from, as tasks of two splits that never meet.

| data | problems |
| --- | --- |
| empty | arithmetic word problems, made from each task's seed |
| `statements` | natural-language inference, made from each task's seed |
| `reasoning_gym:NAME` | a generator of reasoning-gym, if it is installed |
| `NAME:FILE` | a file of a published data set |
| `NAME` | the same from the hub |
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from pettingllms.datasets import arithmetic, statements
from pettingllms.datasets.catalog import load
from pettingllms.datasets.overlap import check_overlap, divided
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
            raise DataError(f"test_data is '{test_data}', but problems are made; leave it out")
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
        """The problem of a task. Made ones that are alike in a few signs are of one split, as those
        may be all that a role is shown."""
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
    """Problems to train and to test on, from two files that do not meet or from one, divided."""
    if test_data:
        train, test = load(data, "train"), load(test_data, "test")
        check_overlap(train, test)
        return train, test
    train, test = divided(load(data, "train"), test_share)
    if not train or not test:
        raise DataError(
            f"{data}: {len(train)} problems to train on and {len(test)} to test on are left; give "
            "more, another test_share, or a file of its own as test_data"
        )
    return train, test
