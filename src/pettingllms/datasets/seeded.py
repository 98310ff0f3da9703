"""Tasks that consist of a seed from which the environment generates the problem."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, overload

from pettingllms.seeds import derive_seed
from pettingllms.types import Task

Split = Literal["train", "test"]
Made = TypeVar("Made")
TRIES = 64
"""Attempts before an instance of the other split's half is accepted."""
NUM_MADE = 1024
"""Default number of tasks per split."""


def task_seed(split: Split, index: int) -> int:
    """The unique seed of a task."""
    return derive_seed("task", split, index)


def halved_seed(split: Split, index: int) -> int:
    """A seed that is even for train and odd for test; its parity selects the task's half."""
    return task_seed(split, index) // 2 * 2 + (split == "test")


def of_half(half: int, make: Callable[[int], Made], show: Callable[[Made], str]) -> Made:
    """The first generated instance whose visible text hashes to this half of all instances, so
    that small puzzles are never in both splits."""
    for attempt in range(TRIES):
        made = make(attempt)
        if derive_seed(show(made)) % 2 == half:
            break
    return made


class SeededTasks(Sequence[Task]):
    """`num_tasks` tasks, created on demand; ids of the splits are disjoint."""

    def __init__(
        self, split: Split, num_tasks: int, seed_of: Callable[[Split, int], int] = task_seed
    ) -> None:
        self._split: Split = split
        self._num_tasks = num_tasks
        self._seed_of = seed_of

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
        return Task(f"{self._split}-{index}", seed=self._seed_of(self._split, index))
