"""The order of a run's tasks: which are done, and which come next.

The order is a function of the seed: each pass over the tasks is shuffled again. So the number of
tasks done is the whole state, and a resumed run continues with the same tasks.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pettingllms.seeds import derive_seed
from pettingllms.types import Task


@dataclass(slots=True)
class Ledger:
    """Hands out tasks. Tasks that were taken are in progress until `done` is called."""

    tasks: Sequence[Task]
    seed: int
    num_done: int = 0
    in_progress: list[str] = field(default_factory=list)
    varies: bool = False
    """Whether batches differ in size. Passes are then shuffled regardless of where batches end, so
    that the order still follows from the number of tasks done."""
    _num_taken: int = 0
    _orders: dict[int, list[int]] = field(default_factory=dict)

    def take(self, count: int) -> list[Task]:
        """The next tasks, without duplicates even if a pass ends inside the batch."""
        self.in_progress, self._num_taken = [], 0
        return self._take(count)

    def take_more(self, count: int) -> list[Task]:
        """More tasks for the batch in progress; fewer if it already has nearly all tasks."""
        assert self.varies  # noqa: S101 - batches are then of different sizes
        return self._take(count)

    def _take(self, count: int) -> list[Task]:
        count = min(count, len(self.tasks) - len(self.in_progress))
        taken: list[Task] = []
        while len(taken) < count:
            number, place = divmod(self.num_done + self._num_taken, len(self.tasks))
            task = self.tasks[self._order(number, count)[place]]
            self._num_taken += 1
            if task.id not in self.in_progress:  # else it ended the previous pass
                taken.append(task)
                self.in_progress.append(task.id)
        return taken

    def change(self, tasks: Sequence[Task]) -> None:
        """Replace the tasks and continue the current pass. If there are as many new tasks with the
        same names, the pass keeps its order."""
        self.tasks = tasks
        self._orders = {}

    def done(self) -> None:
        """Mark the tasks in progress as done."""
        self.num_done += self._num_taken
        self.in_progress, self._num_taken = [], 0

    def _order(self, number: int, count: int) -> list[int]:
        """The order of a pass. Tasks that its first batch has from the previous pass come last."""
        if number not in self._orders:
            last = max((known for known in self._orders if known < number), default=-1)
            order = self._orders.get(last, [])
            for made in range(last + 1, number + 1):
                num_before = (made * len(self.tasks) - self.num_done) % count
                late = set() if self.varies else set(order[len(order) - num_before :])
                order = list(range(len(self.tasks)))
                random.Random(derive_seed(self.seed, "pass", made)).shuffle(order)
                order.sort(key=late.__contains__)
            self._orders = {number: order}
        return self._orders[number]
