"""Judge rewards: a judge scores the submissions of a batch of episodes before credit assignment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pettingllms.config import RolloutConfig, RunConfig
from pettingllms.config.judge import JudgeConfig
from pettingllms.envs import Environment
from pettingllms.errors import ConfigError
from pettingllms.judges import (
    FIRST_REFERENCE,
    JudgeContext,
    JudgeModel,
    Verdicts,
    judge_all,
    make_judges,
    reference_assignments,
)
from pettingllms.league import Assignment
from pettingllms.training.component import Component, RunContext, TrainStep
from pettingllms.types import Episode, Reward, Submission, Task

if TYPE_CHECKING:
    from pettingllms.cluster.team import Team

Assignments = Mapping[str, Assignment]
"""Players of each task, by its id."""


def check_judges(config: RunConfig) -> None:
    """Raise ConfigError if a judge of the run could not give verdicts, before anything starts."""
    if config.judge is None:
        return
    judges = config.judge.judges
    for name in config.judge.named():
        problem = judges[name].start_problem() if name in judges else ""
        if problem:
            raise ConfigError(f"judge.judges.{name}", [problem])


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """What episodes were sampled from."""

    tasks: Sequence[Task]
    seed: int
    assignments: Assignments = field(default_factory=dict)
    """Players of a task, by its id, where they differ from [roles]."""
    env: Environment[Any, Any] | None = None
    """None: the environment of training."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Seed of a task, by its id, where it is not `seed`."""


@dataclass
class RunJudges:
    """The judges of a run. They are created once and cache their verdicts."""

    config: JudgeConfig
    rollout: RolloutConfig
    env: Callable[[], Environment[Any, Any]]
    """The environment of training. A curriculum replaces it, and its rule."""
    sample: Callable[..., Awaitable[list[Episode]]]
    """`Team.play`."""
    assign_reference: Callable[[Sequence[Task], Assignments], Assignments]
    """Assignments with the reference in place of every policy that learns."""
    judge_model: Callable[[str], JudgeModel]
    seed: int

    def __post_init__(self) -> None:
        self._judged_env = self.env()
        context = JudgeContext(self._rule, self.judge_model, seed=self.seed)
        self._judges = make_judges(self.config, context)

    async def judge(
        self, episodes: Sequence[Episode], inputs: RolloutInputs, by_score: bool = False
    ) -> Verdicts:
        """Write the judge's rewards to episodes. `by_score`: do not compare answers to one task."""
        self._judged_env = inputs.env or self.env()
        config = self.config
        if by_score and config.against == "group":
            config = config.model_copy(update={"against": "score"})
        references: list[Episode] = []
        if config.against == "reference":
            references = await self._sample_references(inputs)
        share = self.rollout.max_failure_share
        return await judge_all(episodes, references, config, self._judges, share)

    async def close(self) -> None:
        """Close the judges' connections."""
        for judge in self._judges.values():
            await judge.close()

    def _rule(self, submission: Submission, part: str) -> Reward:
        return self._judged_env.rule(submission, part)

    async def _sample_references(self, inputs: RolloutInputs) -> list[Episode]:
        """Episodes of the same tasks by the reference, from the same start states."""
        by_seed: dict[int, list[Task]] = {}
        for task in inputs.tasks:
            by_seed.setdefault(inputs.seeds.get(task.id, inputs.seed), []).append(task)
        found = await asyncio.gather(
            *(
                self.sample(
                    tasks,
                    seed,
                    self.rollout.linear(self.config.num_references),
                    env=inputs.env,
                    assignments=self.assign_reference(tasks, inputs.assignments),
                    first=FIRST_REFERENCE,
                )
                for seed, tasks in by_seed.items()
            )
        )
        return [episode for episodes in found for episode in episodes]


def make_run_judges(
    config: RunConfig,
    env: Callable[[], Environment[Any, Any]],
    judge_model: Callable[[str], JudgeModel],
    sample: Callable[..., Awaitable[list[Episode]]],
) -> RunJudges:
    """The judges of a configuration's [judge] section."""
    assert config.judge is not None  # noqa: S101 - callers check for [judge]
    assign = partial(reference_assignments, config, config.judge.reference)
    return RunJudges(config.judge, config.rollout, env, sample, assign, judge_model, config.seed)


def judges_of_team(team: "Team") -> RunJudges:
    """Judges that sample references with a team."""
    return make_run_judges(team.config, lambda: team.env, team.judge_model, team.play)


@asynccontextmanager
async def team_judges(team: "Team") -> AsyncIterator[RunJudges | None]:
    """The judges of a team until the block ends; None if its configuration has no judge."""
    judges = judges_of_team(team) if team.config.judge else None
    try:
        yield judges
    finally:
        if judges is not None:
            await judges.close()


class JudgeRewards(Component):
    """Scores the episodes of every step."""

    judges: RunJudges | None = None
    """Set once the team has started."""

    async def start(self, context: RunContext) -> None:
        self.judges = judges_of_team(context.team)

    async def score_episodes(self, step: TrainStep) -> None:
        assert self.judges is not None  # noqa: S101 - set by start
        with step.phase("judging"):
            verdicts = await self.judges.judge(
                step.episodes,
                RolloutInputs(step.tasks, step.seed, step.assignments, seeds=step.seeds),
            )
        if verdicts.metrics:
            step.add_metrics("judge", verdicts.metrics)
        for alarm in verdicts.alarms:
            step.callback.on_message(f"ALARM {alarm}")

    async def stop(self) -> None:
        if self.judges is not None:
            await self.judges.close()
