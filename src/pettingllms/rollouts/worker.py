"""One worker: thousands of episodes at once on one event loop."""

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment
from pettingllms.errors import ClusterError, TaskError
from pettingllms.rollouts.context import Table
from pettingllms.rollouts.env_calls import Guard
from pettingllms.rollouts.linear import judge_turns, play_linear
from pettingllms.rollouts.player import Player
from pettingllms.rollouts.replay import play_replay
from pettingllms.rollouts.tree import play_tree
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task

DEFAULT, RARELY = gc.get_threshold(), (100_000, 50, 1000)
ROLLOUTS = {"linear": play_linear, "tree": play_tree, "replay": play_replay}
Play = Callable[[Any, Episode, Mapping[str, Player], int], Awaitable[None]]
"""Plays an episode of a workflow: it is given that, the episode, its players, the play's number."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for reference cycles rarely while episodes pile up.

    Turns and steps are plain data without cycles, and nearly all of them live on. With the default
    thresholds the collector walks over them again and again, the more often the more there are.
    """
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        # A worker that started inside another's run found our setting, not the program's.
        gc.set_threshold(*(DEFAULT if before == RARELY else before))


@dataclass(frozen=True, slots=True)
class Worker:
    """Plays tasks with the players it was given, and delivers each episode when it is over."""

    env: Environment[Any, Any]
    players: Mapping[str, Player]
    config: RolloutConfig
    reward: RewardConfig
    others: Mapping[str, Mapping[str, Player]] = field(default_factory=dict)
    """Seats of tasks that are played by others than the rest, by the task's id."""
    play: Play | None = None
    """How a workflow is played; None: `env` is an environment, which is stepped."""

    def __post_init__(self) -> None:
        if self.config.type not in ROLLOUTS:
            raise ValueError(
                f"rollout.type is '{self.config.type}'; resolve it to 'linear', 'tree' or 'replay' "
                "first"
            )
        if self.play is not None and self.config.type != "linear":
            raise ValueError(f"a workflow cannot be played as '{self.config.type}'")
        if self.config.type == "replay" and self.config.replay == "auto":
            raise ValueError(
                "rollout.replay is 'auto'; resolve it to 'resampled' or 'silent' first"
            )

    async def run(
        self,
        tasks: Iterable[Task],
        seed: int,
        deliver: Callable[[Episode], None],
        first: int = 0,
    ) -> None:
        """Play every task; episodes are delivered in the order in which they end.

        `first` is the number of a task's first play, where earlier ones are there already. Engines
        that are gone end it with one ClusterError, however many plays have waited for them.
        """
        plays = self._plays(_each_once(tasks), seed, first)
        under_way: set[str] = set()

        async def play_all(episode: Episode, path: int) -> None:
            """Play one episode, then whichever is next, until none is left."""
            while True:
                under_way.add(episode.id)
                players = self.others.get(episode.task.id, self.players)
                if self.play is not None:
                    await self.play(self.env, episode, players, path)
                    judge_turns(episode)
                else:
                    table = Table(self.env, players, self.config, self.reward, guard)
                    await ROLLOUTS[self.config.type](table, episode, path)
                under_way.remove(episode.id)
                deliver(episode)
                if (play := next(plays, None)) is None:
                    return
                episode, path = play

        with rare_collections(), Guard(self.config.env_timeout, self.env.blocking) as guard:
            try:
                async with asyncio.TaskGroup() as group:
                    for episode, path in itertools.islice(plays, self.config.max_concurrent):
                        group.create_task(play_all(episode, path))
            except* ClusterError as dead:
                raise dead.exceptions[0] from None
        assert not under_way, f"lost: {under_way}"  # noqa: S101 - a lost episode is a bug of ours

    def _plays(self, tasks: Iterable[Task], seed: int, first: int) -> Iterator[tuple[Episode, int]]:
        """The episodes to play. All of one task share a seed, so they start from one state."""
        for task in tasks:
            env_seed = derive_seed("env", seed, task.id)
            for number in range(first, first + self.config.num_episodes):
                yield Episode(f"{task.id}/{number}", self.env.id, task, env_seed), number


def in_order(episodes: Iterable[Episode], tasks: Iterable[Task]) -> list[Episode]:
    """Episodes in the order of their tasks and plays, whatever order they ended in."""
    place = {task.id: at for at, task in enumerate(tasks)}
    return sorted(episodes, key=lambda e: (place[e.task.id], len(e.id), e.id))


def _each_once(tasks: Iterable[Task]) -> list[Task]:
    """The tasks of a batch; two with one id would be played alike and compared as one problem."""
    found: dict[str, Task] = {}
    for task in tasks:
        if task.id in found:
            raise TaskError(
                f"task '{task.id}' comes twice in one batch; give every task an id of its own, or "
                "raise rollout.num_samples"
            )
        found[task.id] = task
    return list(found.values())
