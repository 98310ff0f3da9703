"""The order of tasks in asynchronous training, where groups end in any order.

Tasks are shuffled once per pass, and numbered over all passes. Each number is trained on once,
whatever order groups end in. A number stays open from the moment it is taken until a batch with it
has been trained on, so open numbers and the count of finished ones are the whole state. A resumed
run starts with the open numbers.
"""

import random
from collections import Counter
from collections.abc import Sequence

from pettingllms.errors import TaskError
from pettingllms.seeds import derive_seed
from pettingllms.types import Task


class TaskQueue:
    """Hands out the tasks of a run, never the same task twice at a time."""

    def __init__(
        self, tasks: Sequence[Task], seed: int, num_done: int = 0, open_numbers: Sequence[int] = ()
    ) -> None:
        """`num_done` numbers have been trained on, and all below the largest one, or the open
        ones, have been taken."""
        counts = Counter(task.id for task in tasks)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise TaskError(
                f"task id '{twice[0]}' occurs twice among the training tasks; asynchronous "
                "training (rollout.max_staleness) needs a distinct id for every task"
            )
        self._tasks = tasks
        self._seed = seed
        self.num_done = num_done
        self._waiting = sorted(open_numbers)
        """Open numbers that are not in progress."""
        self._in_progress: dict[int, str] = {}
        """Ids of the tasks in progress, by number."""
        self._busy: set[str] = set()
        """The same ids."""
        self._next = num_done + len(open_numbers)
        self._orders: dict[int, list[int]] = {}

    @property
    def open_numbers(self) -> list[int]:
        """Numbers that were taken and not trained on."""
        return sorted([*self._waiting, *self._in_progress])

    @property
    def num_available(self) -> int:
        """Tasks that are not in progress."""
        return len(self._tasks) - len(self._in_progress)

    def take(self) -> tuple[int, Task]:
        """The lowest open number whose task is not in progress, with its task."""
        assert self.num_available  # noqa: S101 - the caller's part
        for at, number in enumerate(self._waiting):
            if (task := self._task(number)).id not in self._busy:
                del self._waiting[at]
                break
        else:
            while (task := self._task(self._next)).id in self._busy:
                self._waiting.append(self._next)  # its task still runs for an earlier pass
                self._next += 1
            number = self._next
            self._next += 1
        self._in_progress[number] = task.id
        self._busy.add(task.id)
        return number, task

    def give_back(self, number: int) -> None:
        """Sample a task again: its group was too old to be trained on."""
        self._busy.remove(self._in_progress.pop(number))
        self._waiting = sorted([*self._waiting, number])

    def done(self, numbers: Sequence[int]) -> None:
        """Mark tasks as trained on."""
        for number in numbers:
            self._busy.remove(self._in_progress.pop(number))
        self.num_done += len(numbers)

    def _task(self, number: int) -> Task:
        which, place = divmod(number, len(self._tasks))
        if which not in self._orders:
            order = list(range(len(self._tasks)))
            random.Random(derive_seed(self._seed, "pass", which)).shuffle(order)
            self._orders = {k: o for k, o in self._orders.items() if k >= which - 1}
            self._orders[which] = order
        return self._tasks[self._orders[which][place]]
