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
        count = min(count, len(self.tasks))
        places = (divmod(self.num_done + n, len(self.tasks)) for n in range(count))
        taken = [self.tasks[self._order(number, count)[place]] for number, place in places]
        self.under_way = [task.id for task in taken]
        return taken

    def change(self, tasks: Sequence[Task]) -> None:
        """Go on with other tasks, from where the pass is: with as many of them, and the same names,
        the pass ends as it would have."""
        self.tasks = tasks
        self._orders = {}

    def done(self) -> None:
        """What was under way has been learnt from."""
        self.num_done += len(self.under_way)
        self.under_way = []

    def _order(self, number: int, count: int) -> list[int]:
        """The order of a pass. What its first batch has from the pass before comes last in it."""
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
