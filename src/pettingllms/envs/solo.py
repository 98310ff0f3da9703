"""One role alone, in an environment made for several: in one seat, or in all of them by turns."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, ScriptedPlayer, Split, StepResult
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Message, Reward, Rewards, Submission, Task, total

SOLO = "solo"
NUM_DEALS = 16
"""Deals to look at before a seat is given up in which the role has no turn."""


@dataclass(frozen=True, slots=True)
class SoloState:
    """The inner state, which seat the role has, and the seed of the scripted replies."""

    inner: Any
    position: str
    seed: int = 0
    num_steps: int = 0


def with_options(env: Environment[Any, Any], **options: object) -> Environment[Any, Any]:
    """The environment with these options: itself if it has them, since another may read a file."""
    config = env.config.model_copy(update=options)
    return env if config == env.config else type(env)(config)


class SoloAllRoles(Environment[SoloState, EnvConfig]):
    """The role `solo` speaks for whoever is to move, and sees what that seat sees.

    For environments in which one role acts at a time and all are paid as a team.
    """

    def __init__(self, env: Environment[Any, Any]) -> None:
        super().__init__(env.config)
        self.env = env
        self.id = env.id
        self.players = {name: partial(_play_role, play) for name, play in env.players.items()}
        self.late_rewards = env.late_rewards
        self.limit_reward = env.limit_reward
        self.limit_level = env.limit_level
        self.can_fork = env.can_fork
        self.blocking = env.blocking
        self.runs_programs = env.runs_programs
        self.judged = env.judged
        self.rule_parts = env.rule_parts

    @property
    def roles(self) -> tuple[str, ...]:
        return (SOLO,)

    @property
    def image_roles(self) -> tuple[str, ...]:
        return (SOLO,) if self.env.image_roles else ()

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.env.tasks(split)

    def reset(self, task: Task, seed: int) -> SoloState:
        inner = self.env.reset(task, seed)
        return SoloState(inner, self._mover(inner, self.env.roles[0]))

    def acting(self, state: SoloState) -> tuple[str, ...]:
        return (SOLO,) if self.env.acting(state.inner) else ()

    def observe(self, state: SoloState, role: str) -> Sequence[Message]:
        return self.env.observe(state.inner, state.position)

    def step(self, state: SoloState, replies: Mapping[str, str]) -> StepResult[SoloState]:
        result = self.env.step(state.inner, {state.position: replies[SOLO]})
        after = replace(
            state, inner=result.state, position=self._mover(result.state, state.position)
        )
        shown = _shown(state.position, [result])
        return StepResult(after, _as_solo(state.position, [result]), result.metrics, shown)

    def success(self, state: SoloState, role: str) -> bool:
        return self.env.success(state.inner, state.position)

    def answer(self, state: SoloState, role: str) -> str | None:
        return self.env.answer(state.inner, state.position)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        return self.env.rule(submission, part)

    def redeal(self, state: SoloState, role: str, rng: random.Random) -> SoloState:
        return replace(state, inner=self.env.redeal(state.inner, state.position, rng))

    def silence(self, state: SoloState, role: str) -> str:
        return self.env.silence(state.inner, state.position)

    def draw(self, state: SoloState, role: str) -> str:
        return self.env.draw(state.inner, state.position)

    def reply_of(self, typed: str) -> str:
        return self.env.reply_of(typed)

    def refusal(self, state: SoloState, role: str, reply: str) -> str | None:
        return self.env.refusal(state.inner, state.position, reply)

    def hint(self, state: SoloState, role: str) -> str:
        return self.env.hint(state.inner, state.position)

    def _mover(self, inner: Any, before: str) -> str:
        return next(iter(self.env.acting(inner)), before)


class SoloOneRole(SoloAllRoles):
    """The role `solo` has one seat, which one by the task; a script plays the others."""

    def __init__(self, env: Environment[Any, Any], player: str) -> None:
        super().__init__(env)
        self._other = env.player(player)

    def reset(self, task: Task, seed: int) -> SoloState:
        """A play in which the role has a turn: dealt anew, or else with another seat, if it would
        have none."""
        first, roles = derive_seed("seat", task.id), self.env.roles
        for at, deal in product(range(len(roles)), range(NUM_DEALS)):
            dealt = derive_seed("deal", seed, deal) if deal else seed
            position = roles[(first + at) % len(roles)]
            state = SoloState(self.env.reset(task, dealt), position, derive_seed("solo", dealt))
            state, _ = self._play_others(state)
            if self.env.acting(state.inner):
                break
        return state

    def step(self, state: SoloState, replies: Mapping[str, str]) -> StepResult[SoloState]:
        state, own = self._step_once(state, {state.position: replies[SOLO]})
        state, after = self._play_others(state)
        results = [own, *after]
        metrics = {name: value for one in reversed(results) for name, value in one.metrics.items()}
        return StepResult(
            state, _as_solo(state.position, results), metrics, _shown(state.position, results)
        )

    def _play_others(self, state: SoloState) -> tuple[SoloState, list[StepResult[Any]]]:
        results = []
        while (acting := self.env.acting(state.inner)) and state.position not in acting:
            state, result = self._step_once(state, {})
            results.append(result)
        return state, results

    def _step_once(
        self, state: SoloState, replies: dict[str, str]
    ) -> tuple[SoloState, StepResult[Any]]:
        rng = random.Random(derive_seed(state.seed, state.num_steps))
        for role in self.env.acting(state.inner):
            if role not in replies:
                replies[role] = self._other(self.env, state.inner, role, rng)
        result = self.env.step(state.inner, replies)
        return replace(state, inner=result.state, num_steps=state.num_steps + 1), result


def _as_solo(position: str, results: Sequence[StepResult[Any]]) -> Rewards:
    """What a seat was paid for its reply and for all that followed before its next one."""
    process = results[0].rewards.process.get(position)
    agent = total(result.rewards.agent.get(position) for result in results)
    return Rewards(
        process={} if process is None else {SOLO: process},
        agent={} if agent is None else {SOLO: agent},
        team=total(result.rewards.team for result in results),
    )


def _shown(position: str, results: Sequence[StepResult[Any]]) -> dict[str, Submission]:
    """What a judge is shown of a seat, or of all seats together."""
    found = [(role, one) for result in results for role, one in result.submissions.items()]
    return {TEAM if role == TEAM else SOLO: one for role, one in found if role in (TEAM, position)}


def _play_role(
    player: ScriptedPlayer, env: SoloAllRoles, state: SoloState, role: str, rng: random.Random
) -> str:
    return player(env.env, state.inner, state.position, rng)
