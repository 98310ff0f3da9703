"""Tasks that are nothing but a seed: the environment makes the problem from it."""

from collections.abc import Sequence
from typing import overload

from pettingllms.envs.base import Split
from pettingllms.seeds import derive_seed
from pettingllms.types import Task


class SeededTasks(Sequence[Task]):
    """`num_tasks` tasks made on demand; those of one split never share an id with the other's."""

    def __init__(self, split: Split, num_tasks: int) -> None:
        self._split = split
        self._num_tasks = num_tasks

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
        return Task(f"{self._split}-{index}", seed=derive_seed("task", self._split, index))
