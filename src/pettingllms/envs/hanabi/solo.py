"""One role alone at the Hanabi table: it plays every seat in turn, and sees what that seat sees."""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, Player, Split, StepResult
from pettingllms.envs.hanabi.replies import name
from pettingllms.envs.hanabi.rules import Table
from pettingllms.envs.solo import SOLO
from pettingllms.types import Message, Rewards, Task


class AllSeats(Environment[Table, EnvConfig]):
    """The role `solo` speaks for whoever is to move; hands stay hidden from their holders."""

    def __init__(self, env: Environment[Table, Any]) -> None:
        super().__init__(env.config)
        self.env = env
        self.id = env.id  # type: ignore[misc]
        self.players = {  # type: ignore[misc]
            player: partial(_play_mover, play) for player, play in env.players.items()
        }

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLO,)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.env.tasks(split)

    def reset(self, task: Task, seed: int) -> Table:
        return self.env.reset(task, seed)

    def acting(self, state: Table) -> tuple[str, ...]:
        return (SOLO,) if self.env.acting(state) else ()

    def observe(self, state: Table, role: str) -> Sequence[Message]:
        return self.env.observe(state, name(state.mover))

    def step(self, state: Table, replies: Mapping[str, str]) -> StepResult[Table]:
        mover = name(state.mover)
        result = self.env.step(state, {mover: replies[SOLO]})
        process = result.rewards.process.get(mover)
        rewards = Rewards({} if process is None else {SOLO: process}, team=result.rewards.team)
        return StepResult(result.state, rewards, result.metrics)

    def success(self, state: Table, role: str) -> bool:
        return self.env.success(state, name(state.mover))

    def redeal(self, state: Table, role: str, rng: random.Random) -> Table:
        return self.env.redeal(state, name(state.mover), rng)

    def draw(self, state: Table, role: str) -> str:
        return self.env.draw(state, name(state.mover))

    def hint(self, state: Table, role: str) -> str:
        return self.env.hint(state, name(state.mover))


def _play_mover(player: Player, env: AllSeats, state: Table, role: str, rng: random.Random) -> str:
    return player(env.env, state, name(state.mover), rng)
