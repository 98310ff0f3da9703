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
from typing import Literal, overload

from pettingllms.data import arithmetic, statements
from pettingllms.data.gym import gym_problem
from pettingllms.data.overlap import check_overlap, divided
from pettingllms.data.problems import Problem
from pettingllms.data.sets import load
from pettingllms.errors import DataError
from pettingllms.seeds import derive_seed
from pettingllms.types import Task

Part = Literal["train", "test"]
Make = Callable[[int, int], Problem]
MADE: dict[str, Make] = {"": arithmetic.make, "statements": statements.make}
GYM = "reasoning_gym:"
TRIES = 64
"""Problems to make before one of the other split's half is taken."""


class ProblemTasks:
    """The tasks of both splits, and the problem of each."""

    def __init__(
        self, data: str, test_data: str, num_tasks: int, num_steps: int, test_share: float
    ) -> None:
        self._data, self._num_tasks, self._num_steps = data, num_tasks, num_steps
        made = data in MADE or data.startswith(GYM)
        if made and test_data:
            raise DataError(f"test_data is '{test_data}', but problems are made; leave it out")
        if data.startswith(GYM):
            gym_problem(data.removeprefix(GYM), 0)
        self._split = None if made else _read(data, test_data, test_share)

    def tasks(self, part: Part) -> Sequence[Task]:
        """The tasks of a split."""
        if self._split is None:
            return _Made(part, self._num_tasks)
        problems = self._split[part == "test"][: self._num_tasks]
        return [Task(f"{part}-{problem.id}", problem.to_data()) for problem in problems]

    def problem(self, task: Task) -> Problem:
        """The problem of a task. A made one is of its split's half of all problems: short ones
        would come up in both otherwise."""
        if task.data:
            return Problem.from_data(task.id, task.data)
        for attempt in range(TRIES):
            problem = self._make(derive_seed("problem", task.seed, attempt))
            if derive_seed(problem.key()) % 2 == task.seed % 2:
                break
        return problem

    def _make(self, seed: int) -> Problem:
        if self._data.startswith(GYM):
            return gym_problem(self._data.removeprefix(GYM), seed)
        return MADE[self._data](seed, self._num_steps)


class _Made(Sequence[Task]):
    """Tasks that are nothing but a seed, even to train and odd to test."""

    def __init__(self, part: Part, num_tasks: int) -> None:
        self._part, self._num_tasks = part, num_tasks

    def __len__(self) -> int:
        return self._num_tasks

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._task(at) for at in range(self._num_tasks)[index]]
        return self._task(range(self._num_tasks)[index])

    def _task(self, index: int) -> Task:
        seed = derive_seed("task", self._part, index) // 2 * 2 + (self._part == "test")
        return Task(f"{self._part}-{index}", seed=seed)


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
