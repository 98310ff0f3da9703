"""Asynchronous sampling: engines sample while learners learn (`rollout.max_staleness`).

Each group, all episodes of one task, is sampled by a coroutine. As soon as new weights are
published, more groups start; those in progress continue, their next replies with the new weights.
A step takes the first groups that are complete and not too old, as `GroupSchedule` decides.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pettingllms.league import Assignment
from pettingllms.rollouts.group_buffer import Group, oldest_versions
from pettingllms.runs.checkpoint import State
from pettingllms.runs.summary import learner_tokens
from pettingllms.runs.task_queue import TaskQueue
from pettingllms.seeds import derive_seed
from pettingllms.training.component import TrainStep
from pettingllms.training.group_schedule import GroupSchedule
from pettingllms.training.sampling import Sampling, SamplingParts
from pettingllms.types import Episode, Task, VersionRun


@dataclass(frozen=True, slots=True)
class Sampled:
    """The episodes of one task."""

    task: Task
    seed: int
    assignments: Mapping[str, Assignment]
    episodes: list[Episode]


class AsynchronousSampling(Sampling):
    """Samples groups without waiting for learners."""

    def __init__(self, parts: SamplingParts, queue: TaskQueue) -> None:
        self._parts = parts
        self._queue = queue
        self._schedule: GroupSchedule[Sampled] = GroupSchedule(
            queue, parts.config.rollout, parts.config.train.num_steps
        )
        self._running: dict[asyncio.Task[Sampled], int] = {}
        """The number of the task that each coroutine samples."""
        self._ended: asyncio.Queue[asyncio.Task[Sampled]] = asyncio.Queue()

    async def sample(self, step: TrainStep) -> None:
        """Add the groups of the step, and further ones for tasks that teach nothing if asked to."""
        self._schedule.begin_step()
        await self._add(step, self._schedule.num_tasks)
        num_wanted = len(step.tasks)
        for _ in range(self._parts.config.rollout.max_resamples):
            if (count := self._parts.num_missing(step, num_wanted)) < 1:
                break
            await self._add(step, count)
        step.add_metrics("staleness", self._metrics(step))

    def published(self, step: TrainStep) -> None:
        """Start groups with the new weights."""
        self._schedule.published()
        self._start_groups(step, step.number + 1)

    def record(self, state: State) -> None:
        self._schedule.done()
        state.num_tasks_done = self._queue.num_done
        state.open_tasks = self._queue.open_numbers

    async def stop(self) -> None:
        """Cancel all groups in progress."""
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _add(self, step: TrainStep, count: int) -> None:
        """Add up to `count` groups to the step; fewer if there are not as many tasks."""
        self._start_groups(step, step.number)
        count = min(count, self._schedule.num_waiting)
        taken: list[Group[Sampled]] = []
        while count and not taken:
            self._finish_ended()
            batch = self._schedule.take(self._parts.team.versions, count)
            taken = batch.groups
            for group in batch.dropped:
                episodes = group.content.episodes
                step.dropped_tokens += learner_tokens(episodes, self._parts.config)
            self._start_groups(step, step.number)
            if not taken:
                self._report(step, count)
                self._finish(await self._ended.get())
        for group in taken:
            sampled = group.content
            step.tasks.append(sampled.task)
            step.seeds[sampled.task.id] = sampled.seed
            step.assignments = {**step.assignments, **sampled.assignments}
            step.episodes += sampled.episodes

    def _report(self, step: TrainStep, count: int) -> None:
        per_task = self._parts.config.rollout.num_episodes
        before = len(step.episodes)
        done = min(count, self._schedule.num_finished) * per_task
        step.callback.on_progress(before + done, before + count * per_task)

    def _start_groups(self, step: TrainStep, number: int) -> None:
        """Start the groups that may start before the step `number`, with its players."""
        for key, task in self._schedule.start(number):
            draft = self._draft(step, number, key, task)
            running = asyncio.create_task(self._play(draft), name=f"group {key}")
            self._running[running] = key
            running.add_done_callback(self._ended.put_nowait)

    def _draft(self, step: TrainStep, number: int, key: int, task: Task) -> TrainStep:
        """The step as if it had only this task, for components that choose players."""
        config = self._parts.config
        draft = TrainStep(
            number,
            seed=derive_seed(config.seed, "task", key),
            tasks=[task],
            num_tasks_done=key,
            num_tokens=step.num_tokens,
            learning=config.learning(number),
            last_saved=step.last_saved,
            last_good=step.last_good,
            callback=step.callback,
        )
        for component in self._parts.components:
            component.before_step(draft)
        return draft

    async def _play(self, draft: TrainStep) -> Sampled:
        episodes = await self._parts.team.play(
            draft.tasks, draft.seed, learning=draft.learning, assignments=draft.assignments
        )
        return Sampled(draft.tasks[0], draft.seed, draft.assignments, episodes)

    def _finish_ended(self) -> None:
        """Put all groups that have ended into the buffer; the stalest of them may be taken now."""
        while not self._ended.empty():
            self._finish(self._ended.get_nowait())

    def _finish(self, ended: asyncio.Task[Sampled]) -> None:
        key, sampled = self._running.pop(ended), ended.result()
        turns = self._versions(sampled.episodes)
        oldest = oldest_versions((policy, run.version) for policy, run in turns)
        self._schedule.finish(key, sampled, oldest)

    def _versions(self, episodes: Sequence[Episode]) -> Iterator[tuple[str, VersionRun]]:
        """Policy and versions of each turn of a policy that learns."""
        for episode in episodes:
            for turn in episode.turns:
                if turn.policy in self._parts.team.versions:
                    for run in turn.version_runs:
                        yield turn.policy, run

    def _metrics(self, step: TrainStep) -> dict[str, float]:
        now = self._parts.team.versions
        runs = [(now[name] - run.version, run) for name, run in self._versions(step.episodes)]
        num_tokens = sum(run.num_tokens for _, run in runs)
        dropped = self._schedule.num_dropped
        num_groups = len(self._schedule.taken) + dropped
        return {
            "mean": sum(age * run.num_tokens for age, run in runs) / max(1, num_tokens),
            "max": float(max((age for age, _ in runs), default=0)),
            "dropped_groups": float(dropped),
            "dropped_share": dropped / max(1, num_groups),
            "dropped_tokens": float(step.dropped_tokens),
            "waiting_groups": float(self._schedule.num_finished),
        }
