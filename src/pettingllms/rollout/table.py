"""The table at which plays happen: an environment, its seats, and the moves of every rollout."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment
from pettingllms.rollout.guard import Guard
from pettingllms.rollout.seats import Question, Seat, ask
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Failed, Step, Task, Turn


@dataclass(frozen=True, slots=True)
class Position:
    """Where a play stands: the state, the step that led to it, and the seed of what follows.

    The seed follows from the path taken, so neither the order in which replies arrive nor what
    happens on other branches can change a play.
    """

    state: Any
    step: int | None
    seed: int

    def after(self, state: Any, step: int, *choice: int | str) -> "Position":
        """The position that a choice leads to."""
        return Position(state, step, derive_seed(self.seed, *choice))


@dataclass(frozen=True, slots=True)
class Table:
    """Everything that the plays of one worker share."""

    env: Environment[Any, Any]
    seats: Mapping[str, Seat]
    config: RolloutConfig
    reward: RewardConfig
    guard: Guard

    async def start(self, task: Task, seed: int, path: int | str) -> Position:
        """The position that an episode of this task begins with."""
        state = await self.guard.call(self.env.reset, task, seed)
        return Position(state, None, derive_seed("play", seed, path))

    async def acting(self, at: Position) -> tuple[str, ...]:
        """Roles that speak now."""
        return await self.guard.call(self.env.acting, at.state)

    async def ask_all(
        self, at: Position, task: Task, num_samples: Mapping[str, int]
    ) -> list[list[Turn]]:
        """Ask several roles at the same time; the turns of each, in the order of the roles."""
        questions = [
            await self._question(at, task, role, number) for role, number in num_samples.items()
        ]
        if len(questions) == 1:
            return [await ask(self.seats[questions[0].role], questions[0])]
        return await asyncio.gather(*(ask(self.seats[q.role], q) for q in questions))

    async def step(self, at: Position, episode: Episode, turns: Sequence[int]) -> tuple[Any, int]:
        """Step the environment with these turns' replies; the next state, and the new step."""
        replies = {episode.turns[i].role: episode.turns[i].text for i in turns}
        result = await self.guard.call(self.env.step, at.state, replies)
        episode.steps.append(Step(at.step, tuple(turns), result.rewards, result.metrics))
        return result.state, len(episode.steps) - 1

    async def success(self, at: Position) -> dict[str, bool]:
        """For each role, whether the finished play reached its aim."""
        return {
            role: await self.guard.call(self.env.success, at.state, role) for role in self.env.roles
        }

    def over_limit(self, num_steps: int, num_tokens: int, max_tokens: int) -> Failed | None:
        """The failure to record if a play may not go on."""
        if num_steps >= self.config.max_turns:
            return Failed(f"cut after {num_steps} steps (rollout.max_turns)", "limit")
        if num_tokens >= max_tokens:
            return Failed(f"cut after {num_tokens} tokens, the limit is {max_tokens}", "limit")
        return None

    async def _question(self, at: Position, task: Task, role: str, num_samples: int) -> Question:
        messages = tuple(await self.guard.call(self.env.observe, at.state, role))
        return Question(
            role=role,
            messages=messages,
            state=at.state,
            task_id=task.id,
            seed=derive_seed(at.seed, "ask", role),
            num_samples=num_samples,
            max_tokens=self.config.max_reply_tokens,
            seconds=self.config.sampler_seconds,
        )
