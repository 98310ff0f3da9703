"""One worker: thousands of episodes at once on one event loop."""

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment
from pettingllms.rollout.guard import Guard
from pettingllms.rollout.linear import play_linear
from pettingllms.rollout.seats import Seat
from pettingllms.rollout.table import Table
from pettingllms.rollout.tree import play_tree
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Task

ROLLOUTS = {"linear": play_linear, "tree": play_tree}


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for reference cycles rarely while episodes pile up.

    Turns and steps are plain data without cycles, and nearly all of them live on. With the default
    thresholds the collector walks over them again and again, and a turn costs twice as much at
    10,000 episodes as at 100.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True, slots=True)
class Worker:
    """Plays tasks with the seats it was given, and delivers each episode when it is over."""

    env: Environment[Any, Any]
    seats: Mapping[str, Seat]
    config: RolloutConfig
    reward: RewardConfig

    async def run(
        self, tasks: Iterable[Task], seed: int, deliver: Callable[[Episode], None]
    ) -> None:
        """Play every task; episodes are delivered in the order in which they end."""
        plays = self._plays(tasks, seed)
        with rare_collections(), Guard(self.config.env_seconds, self.env.blocking) as guard:
            table = Table(self.env, self.seats, self.config, self.reward, guard)
            async with asyncio.TaskGroup() as group:
                for _ in range(self.config.max_concurrent):
                    play = next(plays, None)
                    if play is None:
                        break
                    group.create_task(self._play_all(table, play, plays, deliver))

    async def _play_all(
        self,
        table: Table,
        play: tuple[Episode, int] | None,
        plays: Iterator[tuple[Episode, int]],
        deliver: Callable[[Episode], None],
    ) -> None:
        """Play one episode, then whichever is next, until none is left."""
        while play is not None:
            episode, path = play
            await ROLLOUTS[self.config.type](table, episode, path)
            deliver(episode)
            play = next(plays, None)

    def _plays(self, tasks: Iterable[Task], seed: int) -> Iterator[tuple[Episode, int]]:
        """The episodes to play. All of one task share a seed, so they start from one state."""
        num_episodes = self.config.num_samples if self.config.type == "linear" else 1
        for task in tasks:
            env_seed = derive_seed("env", seed, task.id)
            for number in range(num_episodes):
                yield Episode(f"{task.id}/{number}", self.env.id, task, env_seed), number
