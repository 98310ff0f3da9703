"""A simulated run: the loop of training with its own decisions, on simulated processes.

Which groups start, wait, are trained on or dropped is decided by `GroupSchedule`, `GroupBuffer`,
`TaskQueue` and `Ledger`, the classes that training uses. Only what takes time is simulated.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pettingllms.config import RunConfig
from pettingllms.policies import CriticPlan, plan_critics
from pettingllms.rollouts.group_buffer import oldest_versions
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.simulation.assumptions import Assumptions
from pettingllms.simulation.clock import Clock, Event, Process
from pettingllms.simulation.cluster import Replicas, SimulatedCluster, all_of
from pettingllms.simulation.groups import PlayedGroup, Rollouts
from pettingllms.simulation.lockstep import LockstepEngine
from pettingllms.simulation.speeds import LearnerSpeed, Speeds
from pettingllms.simulation.workload import EpisodePlan
from pettingllms.training.group_schedule import GroupSchedule
from pettingllms.types import Task

SPARE = 4
"""Simulated tasks per group that may be under way, at least."""


class Work(Protocol):
    """Where the episodes of groups come from."""

    def group(self, number: int, attempt: int) -> Sequence[EpisodePlan]:
        """The episodes of a group that starts for the `attempt`-th time."""


@dataclass(slots=True)
class SimulatedStep:
    """One step of training."""

    number: int
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of each part."""
    groups: list[PlayedGroup] = field(default_factory=list)
    dropped: list[PlayedGroup] = field(default_factory=list)
    ages: Counter[int] = field(default_factory=Counter)
    """Replies that it trained on, by their staleness."""
    versions: dict[str, int] = field(default_factory=dict)
    """Versions of the policies when it was trained."""
    end: float = 0.0
    """Time of its end."""

    @property
    def reply_tokens(self) -> int:
        """Sampled tokens that it trained on."""
        return sum(group.reply_tokens for group in self.groups)


@dataclass(frozen=True, slots=True)
class Load:
    """What engines and learners have done until some time."""

    time: float
    engine_seconds: float
    """Seconds with a running reply, times GPUs."""
    learner_seconds: float
    """Seconds of work, times GPUs."""
    slot_seconds: float
    """Seconds of running replies."""
    num_failures: int
    """Processes that were lost."""

    def __sub__(self, other: "Load") -> "Load":
        return Load(
            self.time - other.time,
            self.engine_seconds - other.engine_seconds,
            self.learner_seconds - other.learner_seconds,
            self.slot_seconds - other.slot_seconds,
            self.num_failures - other.num_failures,
        )


class SimulatedRun:
    """A run of some steps."""

    def __init__(
        self,
        config: RunConfig,
        speeds: Speeds,
        work: Work,
        assumed: Assumptions,
        seed: int,
        num_steps: int,
    ) -> None:
        self.config = config
        self._speeds = speeds
        self._work = work
        self._num_steps = num_steps
        self.clock = Clock()
        self.cluster = SimulatedCluster(self.clock, config, speeds, assumed, seed)
        self._rollouts = Rollouts(self.clock, self.cluster, speeds)
        for engine, _ in self.cluster.engines:
            if isinstance(engine, LockstepEngine) and speeds.loop.num_workers == 1:
                engine.quiet_at = self._rollouts.free_at
        rollout = config.rollout
        under_way = rollout.num_tasks * (1 + rollout.max_staleness)
        num_tasks = min(assumed.num_tasks, max(SPARE * under_way, num_steps * rollout.num_tasks))
        self.tasks = [Task(f"task-{at}") for at in range(num_tasks)]
        self._ledger = Ledger(self.tasks, config.seed)
        self._schedule: GroupSchedule[PlayedGroup] | None = None
        if rollout.max_staleness:
            queue = TaskQueue(self.tasks, config.seed)
            # As in the middle of a run: at its end, fewer groups would start.
            self._schedule = GroupSchedule(queue, rollout, num_steps + 1 + rollout.max_staleness)
        self._ended: deque[tuple[int, PlayedGroup]] = deque()
        self._some_ended = Event()
        self._attempts: Counter[int] = Counter()
        self.steps: list[SimulatedStep] = []
        self.loads: list[Load] = []
        """Before the first step, and after each."""
        self.on_step: Callable[[SimulatedStep], None] | None = None
        """Called after each step."""

    def run(self) -> "SimulatedRun":
        """Simulate all steps."""
        self.loads.append(self._load())
        self.clock.run_until(self.clock.start(self._train()))
        return self

    def _train(self) -> Process:
        for number in range(1, self._num_steps + 1):
            step = SimulatedStep(number)
            yield from self._timed(step, "sampling", self._sample(step))
            if self.cluster.critics or self._has_heads:
                yield from self._timed(step, "valuing", self._value(step))
            yield from self._timed(step, "learning", self._learn(step))
            yield from self._timed(step, "publishing", self._publish(step))
            if self._schedule is not None:
                self._schedule.published()
                self._start_groups(self._schedule, number + 1)
            yield from self._timed(step, "driver", self._driver(step))
            if self._schedule is None:
                self._ledger.done()
            else:
                self._schedule.done()
            step.end = self.clock.now
            self.steps.append(step)
            self.loads.append(self._load())
            if self.on_step is not None:
                self.on_step(step)

    def _timed(self, step: SimulatedStep, name: str, process: Process) -> Process:
        start = self.clock.now
        yield from process
        step.seconds[name] = self.clock.now - start

    def _sample(self, step: SimulatedStep) -> Process:
        if self._schedule is None:
            yield from self._sample_all(step)
        else:
            yield from self._take(step, self._schedule)
        step.versions = dict(self.cluster.versions)
        for group in step.groups:
            for (policy, version), count in group.versions.items():
                step.ages[step.versions[policy] - version] += count

    def _sample_all(self, step: SimulatedStep) -> Process:
        """Synchronous: all tasks of the step, and wait for them."""
        numbers = range(self._ledger.num_done, self._ledger.num_done + len(self.tasks))
        tasks = self._ledger.take(self.config.rollout.num_tasks)
        for number, task in zip(numbers, tasks, strict=False):
            self._start(number, task)
        while len(step.groups) < len(tasks):
            yield from self._some()
            while self._ended:
                step.groups.append(self._ended.popleft()[1])
        step.groups.sort(key=lambda group: group.number)

    def _take(self, step: SimulatedStep, schedule: GroupSchedule[PlayedGroup]) -> Process:
        """Asynchronous: the next groups that are finished and within the bound."""
        schedule.begin_step()
        self._start_groups(schedule, step.number)
        count = min(schedule.num_tasks, schedule.num_waiting)
        while count and not step.groups:
            while self._ended:
                number, group = self._ended.popleft()
                schedule.finish(number, group, oldest_versions(group.versions))
            batch = schedule.take(self.cluster.versions, count)
            step.groups = [group.content for group in batch.groups]
            step.dropped += [group.content for group in batch.dropped]
            self._start_groups(schedule, step.number)
            if not step.groups:
                yield from self._some()

    def _some(self) -> Process:
        """Wait until some groups have ended."""
        if not self._ended:
            self._some_ended = Event()
            yield self._some_ended

    def _start_groups(self, schedule: GroupSchedule[PlayedGroup], number: int) -> None:
        for key, task in schedule.start(number):
            self._start(key, task)

    def _start(self, number: int, task: Task) -> None:
        self._attempts[number] += 1
        episodes = self._work.group(number, self._attempts[number])
        group, end = self._rollouts.start(number, task.id, episodes)

        def ended() -> None:
            self._ended.append((number, group))
            if not self._some_ended.happened:
                self._some_ended.happen()

        end.then(ended)

    def _value(self, step: SimulatedStep) -> Process:
        """Critics that are models read the batch, and so do heads of policies."""
        yield from self._sleep()
        works = self._critic_work(step, reads=True)
        if self._has_heads:
            works += [self._read_heads(model, step) for model in self._learning()]
        yield from self._all(works)
        yield from self._sleep()

    def _learn(self, step: SimulatedStep) -> Process:
        yield from self._sleep()
        works = [self._update(model, step) for model in self._learning()]
        yield from self._all([*works, *self._critic_work(step, reads=False)])
        yield from self._sleep()

    def _all(self, works: Sequence[Process]) -> Process:
        if self._speeds.loop.concurrent_learners:
            yield all_of(self.clock, works)
        else:
            for work in works:
                yield from work

    def _update(self, model: Replicas, step: SimulatedStep) -> Process:
        """Update the policies of one model, one after another."""
        speed, learner = self._learner_speed(model), model.learner
        assert learner is not None  # noqa: S101 - of a model that learns
        for policy in model.group.trained:
            tokens, replies = self._batch(step, policy)
            if replies:
                yield learner.work(speed.train_seconds(tokens, replies, self.num_reads))

    def _read_heads(self, model: Replicas, step: SimulatedStep) -> Process:
        speed, learner = self._learner_speed(model), model.learner
        assert learner is not None  # noqa: S101 - of a model that learns
        for policy in model.group.trained:
            yield learner.work(speed.read_seconds(self._batch(step, policy)[0]))

    def _critic_work(self, step: SimulatedStep, reads: bool) -> list[Process]:
        return [self._critic(plan, step, reads) for plan in plan_critics(self.config)]

    def _critic(self, plan: CriticPlan, step: SimulatedStep, reads: bool) -> Process:
        speed, learner = self._speeds.critics[plan.name], self.cluster.critics[plan.name]
        tokens = sum(self._batch(step, policy)[0] for policy in plan.policies)
        yield learner.work(speed.read_seconds(tokens) if reads else speed.train_seconds(tokens))

    def _publish(self, step: SimulatedStep) -> Process:
        """Publish what learned: models at the same time, policies of a model in order."""
        learned = {policy for group in step.groups for policy in group.work}
        asked = [(model, [p for p in model.group.trained if p in learned]) for model in
                 self.cluster.models.values()]  # fmt: skip
        yield all_of(self.clock, [self.cluster.publish(*one) for one in asked if one[1]])

    def _driver(self, step: SimulatedStep) -> Process:
        loop = self._speeds.loop
        turns = sum(one.num_replies for group in step.groups for one in group.work.values())
        yield loop.step + loop.turn * turns

    def _sleep(self) -> Process:
        if self.cluster.colocated and self._speeds.loop.sleep:
            yield self._speeds.loop.sleep

    @property
    def _has_heads(self) -> bool:
        critic = self.config.critic
        return critic is not None and critic.kind == "head"

    @property
    def num_reads(self) -> int:
        """Passes without gradients over a batch: log-probs before several updates, and those of a
        reference model."""
        learner = self.config.learner
        several = learner.num_epochs * learner.num_minibatches > 1
        return int(several) + int(bool(self.config.loss.kl_coef))

    def _learning(self) -> Iterator[Replicas]:
        return (model for model in self.cluster.models.values() if model.learner is not None)

    def _learner_speed(self, model: Replicas) -> LearnerSpeed:
        speed = self._speeds.models[model.group.name].learner
        assert speed is not None  # noqa: S101 - of a model that learns
        return speed

    @staticmethod
    def _batch(step: SimulatedStep, policy: str) -> tuple[int, int]:
        """Distinct tokens and replies of a policy in the batch."""
        works = [group.work[policy] for group in step.groups if policy in group.work]
        return sum(work.num_tokens for work in works), sum(work.num_replies for work in works)

    def _load(self) -> Load:
        engine = slots = 0.0
        for one, num_gpus in self.cluster.engines:
            one.measure()
            engine += one.busy_seconds * num_gpus
            slots += one.reply_seconds
        learner = sum(one.measured() * one.num_gpus for one in self.cluster.learners)
        return Load(self.clock.now, engine, learner, slots, self.cluster.num_failures)
