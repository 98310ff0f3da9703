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
    _orders: dict[int, list[int]] = field(default_factory=dict)

    def take(self, count: int) -> list[Task]:
        """The next tasks, without duplicates even if a pass ends inside the batch."""
        count = min(count, len(self.tasks))
        places = (divmod(self.num_done + n, len(self.tasks)) for n in range(count))
        taken = [self.tasks[self._order(number, count)[place]] for number, place in places]
        self.in_progress = [task.id for task in taken]
        return taken

    def change(self, tasks: Sequence[Task]) -> None:
        """Replace the tasks and continue the current pass. If there are as many new tasks with the
        same names, the pass keeps its order."""
        self.tasks = tasks
        self._orders = {}

    def done(self) -> None:
        """Mark the tasks in progress as done."""
        self.num_done += len(self.in_progress)
        self.in_progress = []

    def _order(self, number: int, count: int) -> list[int]:
        """The order of a pass. Tasks that its first batch has from the previous pass come last."""
        if number not in self._orders:
            last = max((known for known in self._orders if known < number), default=-1)
            order = self._orders.get(last, [])
            for made in range(last + 1, number + 1):
                num_before = (made * len(self.tasks) - self.num_done) % count
                late = set(order[len(order) - num_before :])
                order = list(range(len(self.tasks)))
                random.Random(derive_seed(self.seed, "pass", made)).shuffle(order)
                order.sort(key=late.__contains__)
            self._orders = {number: order}
        return self._orders[number]
