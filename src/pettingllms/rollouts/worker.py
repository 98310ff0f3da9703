"""The rollout worker: thousands of concurrent episodes on one event loop."""

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment
from pettingllms.errors import ClusterError, TaskError
from pettingllms.rollouts.context import RolloutContext
from pettingllms.rollouts.env_calls import EnvCaller
from pettingllms.rollouts.linear import linear_rollout, link_outcomes
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.replay import replay_rollout
from pettingllms.rollouts.tree import tree_rollout
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task

RARELY = (100_000, 50, 1000)
_found: list[tuple[int, int, int]] = []
"""The program's thresholds of the garbage collector, once per block of `rare_collections`."""
ROLLOUTS = {"linear": linear_rollout, "tree": tree_rollout, "replay": replay_rollout}
WorkflowRunner = Callable[[Any, Episode, Mapping[str, Player], int], Awaitable[None]]
"""Runs one episode of a workflow, given the workflow, the episode, its players and its index."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector rarely while episodes accumulate.

    Turns and steps are plain data without reference cycles, and nearly all of them survive. With
    the default thresholds the collector would traverse them again and again. Blocks overlap in
    asynchronous training; the last one restores the thresholds.
    """
    _found.append(_found[0] if _found else gc.get_threshold())
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        before = _found.pop()
        if not _found:
            gc.set_threshold(*before)


@dataclass(frozen=True, slots=True)
class Worker:
    """Samples episodes of tasks with the given players, and delivers each one when it ends."""

    env: Environment[Any, Any]
    players: Mapping[str, Player]
    config: RolloutConfig
    reward: RewardConfig
    task_players: Mapping[str, Mapping[str, Player]] = field(default_factory=dict)
    """Players of tasks that have other players than `players`, by task id."""
    run_workflow: WorkflowRunner | None = None
    """Runs episodes of a workflow; None if `env` is an environment, which is stepped."""
    env_caller: EnvCaller | None = None
    """Shared with other workers of the same environment; None: this worker has its own."""

    def __post_init__(self) -> None:
        if self.config.type not in ROLLOUTS:
            raise ValueError(
                f"rollout.type is '{self.config.type}'; a worker needs 'linear', 'tree' or 'replay'"
            )
        if self.run_workflow is not None and self.config.type != "linear":
            raise ValueError(f"workflows need rollout.type = 'linear', got '{self.config.type}'")
        if self.config.type == "replay" and self.config.replay == "auto":
            raise ValueError("rollout.replay is 'auto'; a worker needs 'resampled' or 'silent'")

    async def run(
        self,
        tasks: Iterable[Task],
        seed: int,
        deliver: Callable[[Episode], None],
        first: int = 0,
    ) -> None:
        """Sample every task; episodes are delivered in the order in which they end.

        `first` is the index of a task's first episode, if earlier ones exist already. If engines
        died, one ClusterError is raised, however many episodes waited for them.
        """
        pending = self._episodes(with_distinct_ids(tasks), seed, first)
        under_way: set[str] = set()

        async def sample_episodes(episode: Episode, path: int) -> None:
            """Sample one episode, then the next one, until none is left."""
            while True:
                under_way.add(episode.id)
                players = self.task_players.get(episode.task.id, self.players)
                async with env_caller.room or nullcontext():
                    if self.run_workflow is not None:
                        await self.run_workflow(self.env, episode, players, path)
                        link_outcomes(episode)
                    else:
                        context = RolloutContext(
                            self.env, players, self.config, self.reward, env_caller
                        )
                        await ROLLOUTS[self.config.type](context, episode, path)
                under_way.remove(episode.id)
                deliver(episode)
                if (following := next(pending, None)) is None:
                    return
                episode, path = following

        with (
            rare_collections(),
            self._calls() as env_caller,
        ):
            try:
                async with asyncio.TaskGroup() as group:
                    for episode, path in itertools.islice(pending, self.config.max_concurrent):
                        group.create_task(sample_episodes(episode, path))
            except* ClusterError as dead:
                raise dead.exceptions[0] from None
        assert not under_way, f"lost: {under_way}"  # noqa: S101 - a lost episode is our bug

    def _calls(self) -> AbstractContextManager[EnvCaller]:
        if self.env_caller is not None:
            return nullcontext(self.env_caller)
        return EnvCaller(self.config.env_timeout, self.env.blocking)

    def _episodes(
        self, tasks: Iterable[Task], seed: int, first: int
    ) -> Iterator[tuple[Episode, int]]:
        """The empty episodes to sample. Those of one task share a seed, hence a start state."""
        for task in tasks:
            env_seed = derive_seed("env", seed, task.id)
            for number in range(first, first + self.config.num_episodes):
                yield Episode(f"{task.id}/{number}", self.env.id, task, env_seed), number


def in_order(episodes: Iterable[Episode], tasks: Iterable[Task]) -> list[Episode]:
    """Sort episodes by task and index, whatever order they ended in."""
    point = {task.id: at for at, task in enumerate(tasks)}
    return sorted(episodes, key=lambda e: (point[e.task.id], len(e.id), e.id))


def with_distinct_ids(tasks: Iterable[Task]) -> list[Task]:
    """The tasks of a batch, checked to have distinct ids: tasks with one id would share seeds and
    groups."""
    found: dict[str, Task] = {}
    for task in tasks:
        if task.id in found:
            raise TaskError(
                f"task id '{task.id}' occurs twice in one batch; give every task a distinct id, or "
                "raise rollout.num_samples"
            )
        found[task.id] = task
    return list(found.values())
