"""Play one episode of an environment with replies from outside, such as another framework's agents.

The framework asks its own models. This module keeps the rules: who acts, what each role sees, and
which rewards the episode gives.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.envs import Environment, Workflow
from pettingllms.envs.base import StepResult, observation, successes
from pettingllms.errors import ExchangeError, nearest
from pettingllms.judges import with_verdict
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Message, Reward, Rewards, Scored, Task, total

Ask = Callable[[str, Sequence[Message]], Awaitable[str | None]]
"""Takes a role and its observation, and gives the reply; None if a limit ended the role's run."""


@dataclass(frozen=True, slots=True)
class RoleResult:
    """What an episode gave to one role."""

    rewards: Mapping[str, float]
    """Reward by level: `process`, `agent` and `team`. A level without a reward is absent."""
    success: bool
    num_turns: int

    @property
    def reward(self) -> float:
        """The sum over the levels."""
        return sum(self.rewards.values())


@dataclass(frozen=True, slots=True)
class CoPlayers:
    """Which roles the framework plays, and who plays the others."""

    roles: tuple[str, ...]
    player: str = "random"

    @classmethod
    def for_role(cls, env: Environment[Any, Any], role: str, player: str) -> "CoPlayers":
        """The framework plays `role`, or every role if it is empty."""
        require_steps(env)
        if role and role not in env.roles:
            raise ExchangeError(f"'{env.id}' has no role '{role}'; {nearest(role, env.roles)}")
        roles = (role,) if role else tuple(env.roles)
        if set(roles) != set(env.roles):
            env.player(player)  # raises if there is none of that name
        return cls(roles, player)

    def reply(self, env: Environment[Any, Any], state: Any, role: str, seed: int) -> str:
        """The scripted reply of a role."""
        return env.player(self.player)(env, state, role, random.Random(seed))


def require_steps(env: Environment[Any, Any]) -> None:
    """Refuse environments that cannot be played step by step."""
    if isinstance(env, Workflow):
        raise ExchangeError(
            f"'{env.id}' is a workflow: it calls its models itself, so no other framework can play "
            "it step by step"
        )


async def play_episode(
    env: Environment[Any, Any],
    task: Task,
    seed: int,
    ask: Ask,
    players: CoPlayers,
    max_steps: int = 200,
) -> dict[str, RoleResult]:
    """Play from reset to end; ExchangeError if a reward could not be given."""
    state, given = env.reset(task, seed), list[Rewards]()
    num_turns = dict.fromkeys(env.roles, 0)
    is_cut = False
    for at in range(max_steps):
        acting = env.acting(state)
        if not acting:
            break
        asked = [role for role in acting if role in players.roles]
        found = await asyncio.gather(
            *(ask(role, list(observation(env, state, role))) for role in asked)
        )
        if silent := tuple(r for r, text in zip(asked, found, strict=True) if text is None):
            given.append(env.limit_rewards(silent))
            is_cut = True
            break
        replies = {role: text or "" for role, text in zip(asked, found, strict=True)}
        for role in acting:
            num_turns[role] += 1
            if role not in replies:
                replies[role] = players.reply(env, state, role, derive_seed("co", seed, at, role))
        result = await _step(env, state, {role: replies[role] for role in acting})
        given.append(await _judged(env, result))
        state = result.state
    else:
        if env.acting(state):
            given.append(env.limit_rewards(env.roles))
            is_cut = True
    ended = dict.fromkeys(env.roles, False) if is_cut else successes(env, state)
    return {
        role: RoleResult(_levels(env, given, role), ended[role], num_turns[role])
        for role in env.roles
    }


async def _step(
    env: Environment[Any, Any], state: Any, replies: Mapping[str, str]
) -> StepResult[Any]:
    if env.blocking or env.runs_programs:
        return await asyncio.to_thread(env.step, state, replies)
    return env.step(state, replies)


async def _judged(env: Environment[Any, Any], result: StepResult[Any]) -> Rewards:
    """The rewards of a step; in judged environments with those of the rule for its submissions."""
    rewards = result.rewards
    if not env.judged:
        return rewards
    for role, submission in result.submissions.items():
        verdict = await asyncio.to_thread(env.rule, submission)
        rewards = with_verdict(rewards, role, submission.level, verdict)
    return rewards


def _levels(env: Environment[Any, Any], given: Sequence[Rewards], role: str) -> dict[str, float]:
    levels: dict[str, Reward | None] = {
        "process": total(rewards.process.get(role) for rewards in given),
        "agent": total(rewards.agent.get(role) for rewards in given),
        "team": total(rewards.team for rewards in given),
    }
    found: dict[str, float] = {}
    for level, reward in levels.items():
        if isinstance(reward, Failed):
            raise ExchangeError(f"'{env.id}' gave '{role}' no {level} reward: {reward.reason}")
        if isinstance(reward, Scored):
            found[level] = reward.value
    return found
