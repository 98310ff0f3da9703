"""How a step of training gets its episodes: synchronously here, asynchronously in
`async_sampling`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pettingllms.algos import Algorithm
from pettingllms.config import RunConfig
from pettingllms.runs.checkpoint import State
from pettingllms.runs.ledger import Ledger
from pettingllms.runs.summary import learner_tokens
from pettingllms.training.component import Component, TrainStep
from pettingllms.types import Task

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team


@dataclass(frozen=True, slots=True)
class SamplingParts:
    """What sampling uses of a run."""

    config: RunConfig
    team: "Team"
    algorithm: Algorithm
    components: Sequence[Component]

    def num_missing(self, step: TrainStep, num_wanted: int) -> int:
        """Tasks to sample in place of those that teach nothing, within the token budget."""
        num_tokens = (
            step.num_tokens + learner_tokens(step.episodes, self.config) + step.dropped_tokens
        )
        if self.config.train.is_over(step.number - 1, num_tokens):
            return 0
        num_useful = len(step.tasks) - len(self.algorithm.flat_tasks(step.episodes))
        return num_wanted - num_useful


class Sampling:
    """The source of episodes; hooks of the training loop."""

    def begin(self, step: TrainStep) -> None:
        """Called at the beginning of a step."""

    async def sample(self, step: TrainStep) -> None:
        """Add tasks and episodes to the step."""
        raise NotImplementedError

    def published(self, step: TrainStep) -> None:
        """Called when all samplers have the weights that learned from the step."""

    def record(self, state: State) -> None:
        """Mark the tasks of the step as done, and write to the run's state which tasks remain."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop sampling."""


class SynchronousSampling(Sampling):
    """Samples the tasks of a step with the newest weights, while learners wait."""

    def __init__(self, parts: SamplingParts, ledger: Ledger) -> None:
        self._parts = parts
        self._ledger = ledger

    def begin(self, step: TrainStep) -> None:
        """Take the tasks of the step, and choose their players."""
        step.tasks = self._ledger.take(self._parts.config.rollout.num_tasks)
        for component in self._parts.components:
            component.before_step(step)

    async def sample(self, step: TrainStep) -> None:
        """Sample the episodes of the step, again for tasks that teach nothing if asked to."""
        num_wanted = len(step.tasks)
        await self._play(step, step.tasks)
        for _ in range(self._parts.config.rollout.max_resamples):
            tasks = self._more_tasks(step, self._parts.num_missing(step, num_wanted))
            if not tasks:
                break
            await self._play(step, tasks)

    def record(self, state: State) -> None:
        self._ledger.done()
        state.num_tasks_done = self._ledger.num_done

    async def _play(self, step: TrainStep, tasks: Sequence[Task]) -> None:
        """Sample episodes of some tasks of the step."""
        num_before = len(step.episodes)
        total = num_before + len(tasks) * self._parts.config.rollout.num_episodes
        step.episodes += await self._parts.team.play(
            tasks,
            step.seed,
            deliver=lambda done: step.callback.on_progress(num_before + done, total),
            learning=step.learning,
            assignments=step.assignments,
        )

    def _more_tasks(self, step: TrainStep, count: int) -> list[Task]:
        """Add tasks to the step, and choose their players; those of earlier tasks stay."""
        tasks, chosen = self._ledger.take_more(count), step.assignments
        step.tasks += tasks
        for component in self._parts.components:
            component.before_step(step)
        step.assignments = {**step.assignments, **chosen}
        return tasks
