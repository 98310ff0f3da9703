"""Tasks that are nothing but a seed: the environment makes the problem from it."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, overload

from pettingllms.seeds import derive_seed
from pettingllms.types import Task

Split = Literal["train", "test"]
Made = TypeVar("Made")
TRIES = 64
"""Things to make before one of the other split's half is taken."""
NUM_MADE = 1024
"""Tasks of a split that are made if nobody says how many."""


def task_seed(split: Split, index: int) -> int:
    """The seed of a task, unlike that of any other."""
    return derive_seed("task", split, index)


def halved_seed(split: Split, index: int) -> int:
    """Even to train and odd to test: the half of all puzzles that a task's puzzle must be of."""
    return task_seed(split, index) // 2 * 2 + (split == "test")


def of_half(half: int, make: Callable[[int], Made], show: Callable[[Made], str]) -> Made:
    """What the first attempt makes that is of this half of all there is, by what is shown of it:
    small puzzles would come up in both splits otherwise."""
    for attempt in range(TRIES):
        made = make(attempt)
        if derive_seed(show(made)) % 2 == half:
            break
    return made


class SeededTasks(Sequence[Task]):
    """`num_tasks` tasks made on demand; those of one split never share an id with the other's."""

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
