"""Solo forms of an environment with several roles, for single-agent training.

`SoloAllRoles` plays every role in turn. `SoloOneRole` plays one role against scripted players.
"""

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
MAX_DEALS = 16
"""Resets to try before giving up on a role that never gets a turn."""


@dataclass(frozen=True, slots=True)
class SoloState:
    """The inner state, the inner role that `solo` plays, and the seed of the scripted players."""

    inner: Any
    inner_role: str
    seed: int = 0
    num_steps: int = 0


def with_options(env: Environment[Any, Any], **options: object) -> Environment[Any, Any]:
    """The environment with these options; the same object if nothing changes.

    Reusing it matters because creating an environment may read a data file.
    """
    config = env.config.model_copy(update=options)
    return env if config == env.config else type(env)(config)


class SoloAllRoles(Environment[SoloState, EnvConfig]):
    """The role `solo` plays whichever role is to act, with that role's observation.

    For sequential environments with a team reward.
    """

    def __init__(self, env: Environment[Any, Any], also_rewarded: Sequence[str] = ()) -> None:
        """`also_rewarded` are roles whose agent rewards `solo` gets when it plays another role."""
        super().__init__(env.config)
        self.env = env
        self._also_rewarded = tuple(also_rewarded)
        self.id = env.id
        self.players = {name: partial(_play_role, play) for name, play in env.players.items()}
        self.late_rewards = env.late_rewards
        self.limit_reward = env.limit_reward
        self.limit_level = env.limit_level
        self.can_fork = env.can_fork
        self.blocking = env.blocking
        self.runs_programs = env.runs_programs
        self.judged, self.submits = env.judged, env.submits
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
        return self.env.observe(state.inner, state.inner_role)

    def step(self, state: SoloState, replies: Mapping[str, str]) -> StepResult[SoloState]:
        result = self.env.step(state.inner, {state.inner_role: replies[SOLO]})
        after = replace(
            state, inner=result.state, inner_role=self._mover(result.state, state.inner_role)
        )
        rewards = _solo_rewards(state.inner_role, [result], self._also_rewarded)
        submissions = _solo_submissions(state.inner_role, [result])
        return StepResult(after, rewards, result.metrics, submissions)

    def success(self, state: SoloState, role: str) -> bool:
        return self.env.success(state.inner, state.inner_role)

    def answer(self, state: SoloState, role: str) -> str | None:
        return self.env.answer(state.inner, state.inner_role)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        return self.env.rule(submission, part)

    def redeal(self, state: SoloState, role: str, rng: random.Random) -> SoloState:
        return replace(state, inner=self.env.redeal(state.inner, state.inner_role, rng))

    def silence(self, state: SoloState, role: str) -> str:
        return self.env.silence(state.inner, state.inner_role)

    def draw(self, state: SoloState, role: str) -> str:
        return self.env.draw(state.inner, state.inner_role)

    def reply_of(self, typed: str) -> str:
        return self.env.reply_of(typed)

    def refusal(self, state: SoloState, role: str, reply: str) -> str | None:
        return self.env.refusal(state.inner, state.inner_role, reply)

    def hint(self, state: SoloState, role: str) -> str:
        return self.env.hint(state.inner, state.inner_role)

    def _mover(self, inner: Any, before: str) -> str:
        return next(iter(self.env.acting(inner)), before)


class SoloOneRole(SoloAllRoles):
    """The role `solo` plays one role, chosen by the task; a scripted player plays the others."""

    def __init__(self, env: Environment[Any, Any], player: str) -> None:
        super().__init__(env)
        self._other = env.player(player)

    def reset(self, task: Task, seed: int) -> SoloState:
        """A state in which `solo` has a turn.

        If it would have none, reset with other seeds, then with the next role.
        """
        first, roles = derive_seed("seat", task.id), self.env.roles
        for at, deal in product(range(len(roles)), range(MAX_DEALS)):
            dealt = derive_seed("deal", seed, deal) if deal else seed
            inner_role = roles[(first + at) % len(roles)]
            state = SoloState(self.env.reset(task, dealt), inner_role, derive_seed("solo", dealt))
            state, _ = self._play_others(state)
            if self.env.acting(state.inner):
                break
        return state

    def step(self, state: SoloState, replies: Mapping[str, str]) -> StepResult[SoloState]:
        state, first = self._step_once(state, {state.inner_role: replies[SOLO]})
        state, later = self._play_others(state)
        results = [first, *later]
        metrics = {name: value for one in reversed(results) for name, value in one.metrics.items()}
        return StepResult(
            state,
            _solo_rewards(state.inner_role, results),
            metrics,
            _solo_submissions(state.inner_role, results),
        )

    def _play_others(self, state: SoloState) -> tuple[SoloState, list[StepResult[Any]]]:
        results = []
        while (acting := self.env.acting(state.inner)) and state.inner_role not in acting:
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


def _solo_rewards(
    inner_role: str, results: Sequence[StepResult[Any]], also_rewarded: Sequence[str] = ()
) -> Rewards:
    """Rewards of a role for its reply, summed until its next turn."""
    process = results[0].rewards.process.get(inner_role)
    rewarded = dict.fromkeys((inner_role, *also_rewarded))
    agent = total(result.rewards.agent.get(role) for result in results for role in rewarded)
    return Rewards(
        process={} if process is None else {SOLO: process},
        agent={} if agent is None else {SOLO: agent},
        team=total(result.rewards.team for result in results),
    )


def _solo_submissions(inner_role: str, results: Sequence[StepResult[Any]]) -> dict[str, Submission]:
    """Submissions of a role or of the team, renamed for `solo`."""
    found = [(role, one) for result in results for role, one in result.submissions.items()]
    return {
        TEAM if role == TEAM else SOLO: one for role, one in found if role in (TEAM, inner_role)
    }


def _play_role(
    player: ScriptedPlayer, env: SoloAllRoles, state: SoloState, role: str, rng: random.Random
) -> str:
    return player(env.env, state.inner, state.inner_role, rng)
