"""Which groups of an asynchronous run start, are trained on, and are dropped and sampled again.

A group is all episodes of one task. The schedule has no clock and samples nothing itself, so that
training and the simulator make the same decisions.
"""

from typing import Generic, TypeVar

from pettingllms.config import RolloutConfig
from pettingllms.rollouts.group_buffer import Batch, GroupBuffer, Versions
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.types import Task

T = TypeVar("T")


class GroupSchedule(Generic[T]):
    """The groups of a run, from the order of its tasks to the batches of its steps."""

    def __init__(self, queue: TaskQueue, rollout: RolloutConfig, num_steps: int) -> None:
        self._queue = queue
        self._rollout = rollout
        self._num_steps = num_steps
        self.num_tasks = min(rollout.num_tasks, queue.num_available)
        """Groups per step."""
        self._buffer: GroupBuffer[T] = GroupBuffer(self.num_tasks, rollout.max_staleness)
        self.taken: list[int] = []
        """Numbers of the groups that the current step trains on."""
        self.num_dropped = 0
        """Groups that were dropped in the current step."""

    @property
    def num_finished(self) -> int:
        """Groups that are finished and not taken."""
        return self._buffer.num_finished

    @property
    def num_waiting(self) -> int:
        """Groups that are in progress, or finished and not taken."""
        return self._buffer.num_waiting

    def begin_step(self) -> None:
        """Start to count the groups of a step."""
        self.taken, self.num_dropped = [], 0

    def start(self, step: int) -> list[tuple[int, Task]]:
        """Numbers and tasks of the groups that start now: as many as the bound allows, and as the
        steps from `step` on need."""
        most = min(self._buffer.num_to_start, self._queue.num_available)
        started = [self._queue.take() for _ in range(min(most, self._num_needed(step)))]
        for number, _ in started:
            self._buffer.start(number)
        return started

    def finish(self, number: int, content: T, oldest: Versions) -> None:
        """All episodes of a group have ended. `oldest`: per policy that learns from it, the version
        of its oldest turn."""
        self._buffer.finish(number, content, oldest)

    def take(self, versions: Versions, count: int) -> Batch[T]:
        """The next `count` groups of the step, once there are as many; before that, none. Tasks of
        groups that are too old are sampled again."""
        batch = self._buffer.take(versions, count)
        for group in batch.dropped:
            self._queue.give_back(group.key)
        self.num_dropped += len(batch.dropped)
        self.taken += [group.key for group in batch.groups]
        return batch

    def published(self) -> None:
        """Engines have the weights that were trained on the groups of the step."""
        self._buffer.published()

    def done(self) -> None:
        """The step is complete: mark its tasks as trained on."""
        self._queue.done(self.taken)

    def _num_needed(self, step: int) -> int:
        """Groups that steps from `step` on train on, and that have not started."""
        steps_left = self._num_steps - step + 1
        per_step = self.num_tasks * (1 + self._rollout.max_resamples)
        return steps_left * per_step - self._buffer.num_waiting - self._buffer.num_training
