"""What a batch of episodes is sampled with, in the driver and in rollout workers alike."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.cluster.samplers import PolicySamplers
from pettingllms.config import RolloutConfig, RunConfig
from pettingllms.envs import Environment, make_env_at, make_test_env
from pettingllms.league import Assignment
from pettingllms.rollouts import Player, Worker, in_order
from pettingllms.rollouts.env_calls import EnvCaller
from pettingllms.rollouts.worker import WorkflowRunner
from pettingllms.types import Episode, Task
from pettingllms.types.sampling import Truncation

NO_ASSIGNMENTS: Mapping[str, Assignment] = {}
TEST = 0
"""Instead of a curriculum level, for the environment of evaluation."""


@dataclass(frozen=True, slots=True)
class Play:
    """How the tasks of a batch are played; see `Team.play`."""

    seed: int
    rollout: RolloutConfig
    temperature: float | None
    trained: frozenset[str]
    """Policies that have siblings in a tree."""
    centralized: bool
    """Whether a centralized critic values their turns."""
    assignments: Mapping[str, Assignment]
    """Players of a task, by its id, where they differ from [roles]."""
    sources: Mapping[str, str]
    """The policy of each snapshot."""
    level: int
    """Curriculum level of the environment, or `TEST`."""
    first: int
    """Index of a task's first episode."""
    truncation: Truncation | None = None
    """Replaces the truncation of all policies, in evaluations."""

    def player(self, samplers: PolicySamplers, env: Environment[Any, Any], name: str) -> Player:
        """The player of a policy, of a snapshot of one, or of a scripted player."""
        source, trained = self.sources.get(name, name), name in self.trained
        centralized = self.centralized and trained
        how = (self.temperature, trained, centralized, self.truncation)
        return samplers.player(env, name, source, *how)


def make_worker(
    play: Play,
    tasks: Sequence[Task],
    config: RunConfig,
    env: Environment[Any, Any],
    player: Callable[[str], Player],
    run_workflow: WorkflowRunner | None = None,
    env_caller: EnvCaller | None = None,
) -> Worker:
    """A rollout worker of this process for some tasks. `player` makes a player by name."""
    own = {task.id: play.assignments[task.id] for task in tasks if task.id in play.assignments}
    names = {*config.roles.values(), *(name for some in own.values() for name in some.values())}
    players = {name: player(name) for name in names}
    by_task = {
        task: {role: players[name] for role, name in assignment.items()}
        for task, assignment in own.items()
    }
    usual = {role: players[name] for role, name in config.roles.items()}
    return Worker(env, usual, play.rollout, config.reward, by_task, run_workflow, env_caller)


async def play_here(
    play: Play,
    tasks: Sequence[Task],
    config: RunConfig,
    env: Environment[Any, Any],
    player: Callable[[str], Player],
    deliver: Callable[[int], None],
    run_workflow: WorkflowRunner | None = None,
    env_caller: EnvCaller | None = None,
) -> list[Episode]:
    """Sample episodes in this process, in the order of their tasks."""
    episodes: list[Episode] = []

    def end(episode: Episode) -> None:
        episodes.append(episode)
        deliver(len(episodes))

    worker = make_worker(play, tasks, config, env, player, run_workflow, env_caller)
    await worker.run(tasks, play.seed, end, play.first)
    return in_order(episodes, tasks)


class EnvCallers:
    """Environment callers that many calls of `play` share: one watchdog per environment, and one
    bound on its concurrent blocking calls. In asynchronous training, where each group is a call,
    the calls share one bound on concurrent episodes."""

    def __init__(self, rollout: RolloutConfig) -> None:
        self._room = asyncio.Semaphore(rollout.max_concurrent) if rollout.max_staleness else None
        self._callers: dict[tuple[int, float], tuple[Environment[Any, Any], EnvCaller]] = {}

    def of(self, env: Environment[Any, Any], seconds: float) -> EnvCaller:
        """The caller of an environment, with a timeout of its calls."""
        key = id(env), seconds  # the environment is kept, so its id is not used again
        if key not in self._callers:
            self._callers[key] = env, EnvCaller(seconds, env.blocking, self._room).__enter__()
        return self._callers[key][1]

    def close(self) -> None:
        """Stop the watchdogs."""
        for _, caller in self._callers.values():
            caller.__exit__()
        self._callers = {}


def env_of(config: RunConfig, level: int) -> Environment[Any, Any]:
    """The environment of a level, or of evaluation."""
    return make_test_env(config) if level == TEST else make_env_at(config, level)


def level_of(config: RunConfig, env: Environment[Any, Any]) -> int:
    """The curriculum level of an environment that `make_env_at` created, by its id."""
    if config.curriculum is None:
        return 1
    names = [f"[{config.curriculum.key}={level}]" for level in config.curriculum.levels]
    return next(at for at, name in enumerate(names, 1) if env.id.endswith(name))
