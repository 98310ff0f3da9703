"""Bounded staleness under random schedules on a simulated clock."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms.rollouts.group_buffer import Group, GroupBuffer
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.types import Task


@dataclass(frozen=True)
class Schedule:
    """A run whose durations, failures and learning policies are random."""

    batch_size: int
    max_staleness: int
    num_tasks: int
    num_policies: int
    tail: float
    """Share of groups that take a hundred times as long."""
    failures: float
    """Share of groups whose worker dies, so that they start again."""
    learn_seconds: float
    seed: int
    num_steps: int = 12


schedules = st.builds(
    Schedule,
    batch_size=st.integers(1, 6),
    max_staleness=st.integers(0, 4),
    num_tasks=st.integers(1, 30),
    num_policies=st.integers(1, 3),
    tail=st.sampled_from([0.0, 0.1, 0.4]),
    failures=st.sampled_from([0.0, 0.2]),
    learn_seconds=st.sampled_from([0.01, 1.0, 20.0]),
    seed=st.integers(0, 10_000),
)


@dataclass
class Simulated:
    """The loop of asynchronous training, as a simulation."""

    schedule: Schedule
    trained: list[list[int]] = field(default_factory=list)
    """Numbers of the groups of each batch."""
    staleness: list[int] = field(default_factory=list)
    num_dropped: int = 0
    most_waiting: int = 0

    def __post_init__(self) -> None:
        plan = self.schedule
        self.rng = random.Random(plan.seed)
        tasks = [Task(str(at)) for at in range(plan.num_tasks)]
        self.queue = TaskQueue(tasks, plan.seed)
        self.size = min(plan.batch_size, plan.num_tasks)
        self.buffer: GroupBuffer[str] = GroupBuffer(self.size, plan.max_staleness)
        self.versions = {f"p{at}": 0 for at in range(plan.num_policies)}
        self.now = 0.0
        self.running: list[tuple[float, int, dict[str, int]]] = []

    def run(self) -> "Simulated":
        for _ in range(self.schedule.num_steps):
            self.fill()
            batch = self.take()
            self.trained.append([group.key for group in batch])
            self.staleness += [group.staleness(self.versions) for group in batch]
            self.advance(self.schedule.learn_seconds)
            learned = self.rng.sample(
                sorted(self.versions), self.rng.randint(1, len(self.versions))
            )
            for name in learned:  # policies publish independently
                self.versions[name] += 1
            self.buffer.published()
            self.fill()
            self.queue.done(self.trained[-1])
        return self

    def take(self) -> list[Group[str]]:
        for _ in range(10_000):
            batch = self.buffer.take(self.versions, self.size)
            for group in batch.dropped:
                assert group.staleness(self.versions) > self.schedule.max_staleness
                self.queue.give_back(group.key)
            self.num_dropped += len(batch.dropped)
            self.fill()
            if batch.groups:
                return batch.groups
            assert self.running, "nothing runs, and the batch is not complete: a deadlock"
            self.finish_next()
        raise AssertionError("no batch after 10,000 groups")

    def fill(self) -> None:
        for _ in range(min(self.buffer.num_to_start, self.queue.num_available)):
            number, _ = self.queue.take()
            self.buffer.start(number)
            self.begin(number)
        most = self.size * (1 + self.schedule.max_staleness)
        self.most_waiting = max(self.most_waiting, self.buffer.num_waiting)
        assert self.buffer.num_waiting <= most

    def begin(self, number: int) -> None:
        seconds = self.rng.expovariate(1.0)
        if self.rng.random() < self.schedule.tail:
            seconds *= 100
        heapq.heappush(self.running, (self.now + seconds, number, dict(self.versions)))

    def finish_next(self) -> None:
        self.now, number, oldest = heapq.heappop(self.running)
        if self.rng.random() < self.schedule.failures:
            self.begin(number)  # its worker died; the pool samples it again
        else:
            self.buffer.finish(number, str(number), oldest)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.running and self.running[0][0] <= end:
            self.finish_next()
        self.now = end


@settings(max_examples=1000, deadline=None)
@given(schedules)
def test_random_schedules_keep_the_bound_whole_batches_and_every_task(schedule: Schedule) -> None:
    run = Simulated(schedule).run()
    assert max(run.staleness) <= schedule.max_staleness
    assert all(len(set(batch)) == len(batch) == run.size for batch in run.trained)
    numbers = [number for batch in run.trained for number in batch]
    assert len(set(numbers)) == len(numbers), "each number, so each task of a pass, at most once"
    expected = set(range(max(numbers) + 1)) - set(numbers)
    assert expected <= set(run.queue.open_numbers), "what was passed over is still open"
    if not schedule.max_staleness:
        assert run.num_dropped == 0


def test_in_order_of_start_nothing_is_dropped() -> None:
    plan = Schedule(4, 2, 100, 1, tail=0.0, failures=0.0, learn_seconds=1e6, seed=0)
    run = Simulated(plan).run()
    assert run.num_dropped == 0
    assert max(run.staleness) == 2, "learning is slow, so batches are as old as they may be"
    assert run.most_waiting == 12


def test_long_tails_are_dropped_and_sampled_again() -> None:
    plan = Schedule(4, 1, 1000, 2, tail=0.1, failures=0.0, learn_seconds=5.0, seed=1)
    run = Simulated(Schedule(**{**plan.__dict__, "num_steps": 60})).run()
    assert run.num_dropped > 0


def test_the_stalest_groups_are_taken_first() -> None:
    buffer: GroupBuffer[str] = GroupBuffer(2, 2)
    for key, version in enumerate([3, 1, 2, 3]):
        buffer.start(key)
        buffer.finish(key, "", {"p": version})
    batch = buffer.take({"p": 3}, 2)
    assert [group.key for group in batch.groups] == [1, 2]
    assert not batch.dropped


def test_groups_beyond_the_bound_are_dropped_even_if_the_batch_is_not_complete() -> None:
    buffer: GroupBuffer[str] = GroupBuffer(2, 1)
    buffer.start(0)
    buffer.finish(0, "", {"p": 1, "q": 5})
    batch = buffer.take({"p": 3, "q": 5}, 2)
    assert [group.key for group in batch.dropped] == [0]
    assert not batch.groups
    assert buffer.num_waiting == 0


def test_nothing_starts_between_taking_and_publishing_without_staleness() -> None:
    buffer: GroupBuffer[str] = GroupBuffer(1, 0)
    assert buffer.num_to_start == 1
    buffer.start(0)
    buffer.finish(0, "", {"p": 0})
    assert buffer.take({"p": 0}, 1).groups
    assert buffer.num_to_start == 0
    buffer.published()
    assert buffer.num_to_start == 1


@pytest.mark.parametrize("num_tasks", [1, 3, 7])
def test_a_queue_hands_out_every_task_once_per_pass(num_tasks: int) -> None:
    queue = TaskQueue([Task(str(at)) for at in range(num_tasks)], 0)
    passes: Counter[str] = Counter()
    for _ in range(3 * num_tasks):
        number, task = queue.take()
        passes[task.id] += 1
        queue.done([number])
    assert set(passes.values()) == {3}
