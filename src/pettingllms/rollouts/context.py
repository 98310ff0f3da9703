"""Operations that all rollouts share: sample turns, step the environment, apply limits."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment, StepResult
from pettingllms.envs.base import observation, successes
from pettingllms.rollouts.env_calls import EnvCaller
from pettingllms.rollouts.player import NO_IDS, Player, TurnRequest, sample_turns
from pettingllms.sandbox.blocked_calls import refused_calls, to_metrics
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    NO_REWARDS,
    TEAM,
    Episode,
    Failed,
    Message,
    PromptTooLong,
    Rewards,
    Step,
    Task,
    Turn,
)

CUT = object()
"""State of an episode that a limit cut: no role acts in it, and no role has succeeded."""


@dataclass(frozen=True, slots=True)
class Position:
    """A node of the episode tree: the state, the step that led to it, and the seed of what follows.

    The seed derives from the path to the node. Neither the order in which replies arrive nor other
    branches can change an episode.
    """

    state: Any
    step: int | None
    seed: int

    def after(self, state: Any, step: int | None, *choice: int | str) -> "Position":
        """The position that a choice of replies leads to."""
        return Position(state, step, derive_seed(self.seed, *choice))


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """What the episodes of one worker share."""

    env: Environment[Any, Any]
    players: Mapping[str, Player]
    config: RolloutConfig
    reward: RewardConfig
    env_caller: EnvCaller
    silent: str | None = None
    """A role that is not sampled; it gives the reply that the environment defines as silence."""

    async def start(self, task: Task, seed: int, path: int | str) -> Position:
        """Reset the environment: the first position of an episode."""
        state = await self.env_caller.call("reset", self.env.reset, task, seed)
        return Position(state, None, derive_seed("play", seed, path))

    async def acting(self, at: Position) -> tuple[str, ...]:
        """Roles that act now; none if the episode is over."""
        if at.state is CUT:
            return ()
        return await self.env_caller.call("acting", self._acting, at.state)

    async def sample_turns(
        self, at: Position, task: Task, num_samples: Mapping[str, int], max_tokens: int
    ) -> list[list[Turn]]:
        """Sample turns of several roles concurrently: one list per role, in their order."""
        if self.silent is not None and self.silent in num_samples:
            quiet = await self.silence(at, self.silent)
            others = {role: number for role, number in num_samples.items() if role != self.silent}
            turns = await self.sample_turns(at, task, others, max_tokens)
            sampled = dict(zip(others, turns, strict=True))
            return [sampled.get(role, [quiet]) for role in num_samples]
        requests = []
        for role, number in num_samples.items():
            messages = await self.env_caller.call("observe", self._observe, at.state, role)
            request = self._turn_request(at, task, role, messages, number, max_tokens)
            requests.append(replace(request, centralized=await self._centralized_of(at, role)))
        if len(requests) == 1:
            return [await self._sample(requests[0])]
        return await asyncio.gather(*map(self._sample, requests))

    async def resample_turn(
        self, at: Position, task: Task, turn: Turn, num_samples: int, max_tokens: int
    ) -> list[Turn]:
        """Sample other replies to the prompt of a turn, with the seed of the position."""
        request = self._turn_request(at, task, turn.role, turn.messages, num_samples, max_tokens)
        return await self._sample(request)

    async def _sample(self, request: TurnRequest) -> list[Turn]:
        turns = await sample_turns(self.players[request.role], request)
        for turn in turns:
            if turn.limit and self.config.on_limit == "exclude":
                turn.credit.failure = Failed(turn.limit, "limit")
        return turns

    async def silence(self, at: Position, role: str) -> Turn:
        """The turn of a silent role, which no policy sampled."""
        text = await self.env_caller.call("silence", self._silence, at.state, role)
        return Turn(role, self.players[role].policy, (), NO_IDS, NO_IDS, None, text, None)

    async def _centralized_of(self, at: Position, role: str) -> tuple[Message, ...] | None:
        if not self.players[role].centralized:
            return None
        return await self.env_caller.call(
            "centralized_observation", self._centralized, at.state, role
        )

    async def step(self, at: Position, episode: Episode, turns: Sequence[int]) -> tuple[Any, int]:
        """Step the environment with the replies of these turns: the next state and the new step. A
        reply that a limit cut ends the episode instead."""
        if cut := [episode.turns[i] for i in turns if episode.turns[i].limit]:
            return self._cut_step(at, episode, cut[0].limit, turns, [turn.role for turn in cut])
        replies = {episode.turns[i].role: episode.turns[i].text for i in turns}
        result, metrics = await self.env_caller.call("step", self._step, at.state, replies)
        step = Step(at.step, tuple(turns), result.rewards, metrics, result.submissions)
        episode.steps.append(step)
        return result.state, len(episode.steps) - 1

    def cut(
        self, at: Position, episode: Episode, reason: str, turns: Sequence[int] = ()
    ) -> Position:
        """End an episode at a limit; `turns` are the replies that the limit cut."""
        if self.config.on_limit == "exclude":
            episode.failure = Failed(reason, "limit")
            return at
        state, step = self._cut_step(at, episode, reason, turns, self.env.roles)
        for index in turns:
            episode.turns[index].links.step = step
        episode.last = step
        return at.after(state, step, "cut")

    def _cut_step(
        self,
        at: Position,
        episode: Episode,
        reason: str,
        turns: Sequence[int],
        roles: Sequence[str],
    ) -> tuple[Any, int]:
        bootstrap = self.config.on_limit == "bootstrap"
        rewards = NO_REWARDS if bootstrap else self.env.limit_rewards(roles)
        episode.steps.append(Step(at.step, tuple(turns), rewards, limit=reason, final=True))
        return CUT, len(episode.steps) - 1

    async def success(self, at: Position) -> dict[str, bool]:
        """Success of each role in the finished episode."""
        if at.state is CUT:
            return dict.fromkeys(self.env.roles, False)
        return await self.env_caller.call("success", self._success, at.state)

    async def answers(self, at: Position) -> dict[str, str]:
        """Answers of the finished episode, of the roles that have one."""
        if at.state is CUT:
            return {}
        return await self.env_caller.call("answer", self._answers, at.state)

    def num_sampled(self, turns: Iterable[Turn]) -> int:
        """Number of tokens that count toward limits. Replies of untrained scripted players do not:
        they are bytes and cost nothing."""
        players = self.players
        return sum(
            turn.num_tokens
            for turn in turns
            if players[turn.role].trained or not players[turn.role].reads_state
        )

    def over_limit(self, num_steps: int, num_tokens: int = 0) -> str:
        """The limit that an episode has reached; empty if it may continue."""
        if num_steps >= self.config.max_steps:
            return f"cut after {num_steps} steps (rollout.max_steps)"
        if num_tokens >= self.config.max_episode_tokens:
            return f"cut after {num_tokens} tokens (rollout.max_episode_tokens)"
        return ""

    def too_long(self, turns: Iterable[Turn], num_steps: int) -> str:
        """Why a prompt was too long, if earlier replies made it so. A first prompt that is too long
        is no fault of a policy, and remains a failure."""
        found = (turn.credit.failure for turn in turns)
        reason = next((f.reason for f in found if isinstance(f, PromptTooLong)), "")
        return reason if num_steps and self.config.on_limit != "exclude" else ""

    def _turn_request(
        self,
        at: Position,
        task: Task,
        role: str,
        messages: tuple[Message, ...],
        num_samples: int,
        max_tokens: int,
    ) -> TurnRequest:
        return TurnRequest(
            role=role,
            messages=messages,
            state=at.state,
            task_id=task.id,
            seed=derive_seed(at.seed, "ask", role),
            num_samples=num_samples,
            max_tokens=min(max_tokens, self.config.reply_limit(role)),
            seconds=self.config.sampler_timeout,
        )

    # The methods below run inside the env caller: a result that breaks the contract of environments
    # is a failure of the environment, like an exception.

    def _acting(self, state: Any) -> tuple[str, ...]:
        roles = tuple(self.env.acting(state))
        if unknown := [role for role in roles if role not in self.players]:
            raise ValueError(f"unknown roles: {', '.join(map(str, unknown))}")
        return roles

    def _observe(self, state: Any, role: str) -> tuple[Message, ...]:
        messages = observation(self.env, state, role)
        if not messages or not all(isinstance(message, Message) for message in messages):
            raise TypeError(f"got {messages!r:.60} for '{role}'; expected messages")
        return messages

    def _silence(self, state: Any, role: str) -> str:
        text: object = self.env.silence(state, role)
        if not isinstance(text, str):
            raise TypeError(f"got {text!r:.60} for '{role}'; expected a string")
        return text

    def _centralized(self, state: Any, role: str) -> tuple[Message, ...]:
        messages = tuple(self.env.centralized_observation(state))
        if not messages or not all(isinstance(message, Message) for message in messages):
            raise TypeError(f"got {messages!r:.60}; expected messages")
        *before, last = messages
        return (*before, replace(last, content=f"{last.content}\n\n{role} speaks now."))

    def _step(
        self, state: Any, replies: Mapping[str, str]
    ) -> tuple[StepResult[Any], dict[str, float]]:
        with refused_calls() as refused:
            result: Any = self.env.step(state, replies)
        if not isinstance(result, StepResult) or not isinstance(result.rewards, Rewards):
            raise TypeError(f"got {result!r:.60}; expected a StepResult with Rewards")
        metrics = {str(name): float(value) for name, value in result.metrics.items()}
        if wrong := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise ValueError(f"metrics that are not finite: {', '.join(wrong)}")
        metrics |= to_metrics(refused)
        if unknown := [role for role in result.submissions if role not in (TEAM, *self.players)]:
            raise ValueError(f"submissions of unknown roles: {', '.join(unknown)}")
        if unknown := [role for role in result.rewards.agent if role not in self.players]:
            raise ValueError(f"agent rewards of unknown roles: {', '.join(map(str, unknown))}")
        if silent := [role for role in result.rewards.process if role not in replies]:
            raise ValueError(
                f"process rewards to {', '.join(map(str, silent))} without a reply in this step"
            )
        return result, metrics

    def _success(self, state: Any) -> dict[str, bool]:
        return successes(self.env, state)

    def _answers(self, state: Any) -> dict[str, str]:
        found: dict[str, Any] = {role: self.env.answer(state, role) for role in self.env.roles}
        given = {role: answer for role, answer in found.items() if answer is not None}
        if wrong := [role for role, answer in given.items() if not isinstance(answer, str)]:
            raise TypeError(
                f"got {given[wrong[0]]!r:.60} for '{wrong[0]}'; expected a string or None"
            )
        return given
