"""Which tasks a run has done, in what order, and which come next.

The order is a function of the seed: every pass over the tasks is a shuffle of its own. So the
ledger is a number, how many were done, and a run that goes on takes up just where it was.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pettingllms.seeds import derive_seed
from pettingllms.types import Task


@dataclass(slots=True)
class Ledger:
    """Hands out tasks. What was taken is under way until it is done."""

    tasks: Sequence[Task]
    seed: int
    num_done: int = 0
    under_way: list[str] = field(default_factory=list)
    _orders: dict[int, list[int]] = field(default_factory=dict)

    def take(self, count: int) -> list[Task]:
        """The next tasks, none twice in one batch: a pass over the tasks may end inside a batch."""
        taken: dict[str, Task] = {}
        at = self.num_done
        while len(taken) < min(count, len(self.tasks)):
            number, place = divmod(at, len(self.tasks))
            task = self.tasks[self._order(number)[place]]
            if task.id in taken:
                break
            taken[task.id] = task
            at += 1
        self.under_way = list(taken)
        return list(taken.values())

    def change(self, tasks: Sequence[Task]) -> None:
        """Go on with other tasks, from where the pass is: with as many of them, and the same names,
        the pass ends as it would have."""
        self.tasks = tasks
        self._orders = {}

    def done(self) -> None:
        """What was under way has been learnt from."""
        self.num_done += len(self.under_way)
        self.under_way = []

    def _order(self, number: int) -> list[int]:
        if number not in self._orders:
            order = list(range(len(self.tasks)))
            random.Random(derive_seed(self.seed, "pass", number)).shuffle(order)
            self._orders = {number: order}
        return self._orders[number]
