"""The table at which plays happen: an environment, its players, and the moves of every rollout."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pettingllms.config import RewardConfig, RolloutConfig
from pettingllms.envs import Environment, StepResult
from pettingllms.envs.base import successes
from pettingllms.rollouts.env_calls import Guard
from pettingllms.rollouts.player import NO_IDS, Player, Question, ask
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
"""The state of a play that a limit cut: nobody acts in it, and nobody has succeeded."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a play stands: the state, the step that led to it, and the seed of what follows.

    The seed follows from the path taken, so neither the order in which replies arrive nor what
    happens on other branches can change a play.
    """

    state: Any
    step: int | None
    seed: int

    def after(self, state: Any, step: int | None, *choice: int | str) -> "Position":
        """The position that a choice leads to."""
        return Position(state, step, derive_seed(self.seed, *choice))


@dataclass(frozen=True, slots=True)
class Table:
    """Everything that the plays of one worker share."""

    env: Environment[Any, Any]
    players: Mapping[str, Player]
    config: RolloutConfig
    reward: RewardConfig
    guard: Guard
    silent: str | None = None
    """A role that is not asked: it says what the environment defines as its silence."""

    async def start(self, task: Task, seed: int, path: int | str) -> Position:
        """The position that an episode of this task begins with."""
        state = await self.guard.call("reset", self.env.reset, task, seed)
        return Position(state, None, derive_seed("play", seed, path))

    async def acting(self, at: Position) -> tuple[str, ...]:
        """Roles that speak now."""
        if at.state is CUT:
            return ()
        return await self.guard.call("acting", self._acting, at.state)

    async def ask_all(
        self, at: Position, task: Task, num_samples: Mapping[str, int], max_tokens: int
    ) -> list[list[Turn]]:
        """Ask several roles at the same time; the turns of each, in the order of the roles."""
        if self.silent is not None and self.silent in num_samples:
            quiet = await self.silence(at, self.silent)
            others = {role: number for role, number in num_samples.items() if role != self.silent}
            asked = dict(zip(others, await self.ask_all(at, task, others, max_tokens), strict=True))
            return [asked.get(role, [quiet]) for role in num_samples]
        questions = []
        for role, number in num_samples.items():
            messages = await self.guard.call("observe", self._observe, at.state, role)
            question = self._question(at, task, role, messages, number, max_tokens)
            questions.append(replace(question, centralized=await self._centralized_of(at, role)))
        if len(questions) == 1:
            return [await self._asked(questions[0])]
        return await asyncio.gather(*map(self._asked, questions))

    async def ask_again(
        self, at: Position, task: Task, turn: Turn, num_samples: int, max_tokens: int
    ) -> list[Turn]:
        """Other replies to what this turn replied to; they differ by the seed of the position."""
        question = self._question(at, task, turn.role, turn.messages, num_samples, max_tokens)
        return await self._asked(question)

    async def _asked(self, question: Question) -> list[Turn]:
        turns = await ask(self.players[question.role], question)
        for turn in turns:
            if turn.limit and self.config.on_limit == "exclude":
                turn.credit.failure = Failed(turn.limit, "limit")
        return turns

    async def silence(self, at: Position, role: str) -> Turn:
        """The turn of a role that says nothing: no policy wrote it."""
        text = await self.guard.call("silence", self._silence, at.state, role)
        return Turn(role, self.players[role].policy, (), NO_IDS, NO_IDS, None, text, None)

    async def _centralized_of(self, at: Position, role: str) -> tuple[Message, ...] | None:
        if not self.players[role].centralized:
            return None
        return await self.guard.call("central", self._centralized, at.state, role)

    async def step(self, at: Position, episode: Episode, turns: Sequence[int]) -> tuple[Any, int]:
        """Step the environment with these turns' replies; the next state, and the new step. A reply
        that a limit cut ends the play in place of that."""
        if cut := [episode.turns[i] for i in turns if episode.turns[i].limit]:
            return self._cut_step(at, episode, cut[0].limit, turns, [turn.role for turn in cut])
        replies = {episode.turns[i].role: episode.turns[i].text for i in turns}
        result, metrics = await self.guard.call("step", self._step, at.state, replies)
        step = Step(at.step, tuple(turns), result.rewards, metrics, result.submissions)
        episode.steps.append(step)
        return result.state, len(episode.steps) - 1

    def cut(
        self, at: Position, episode: Episode, reason: str, turns: Sequence[int] = ()
    ) -> Position:
        """End a play at a limit of all its roles; `turns` are replies that it cut."""
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
        """For each role, whether the finished play reached its aim."""
        if at.state is CUT:
            return dict.fromkeys(self.env.roles, False)
        return await self.guard.call("success", self._success, at.state)

    async def answers(self, at: Position) -> dict[str, str]:
        """For each role that came to one, the answer of the finished play."""
        if at.state is CUT:
            return {}
        return await self.guard.call("answer", self._answers, at.state)

    def num_sampled(self, turns: Iterable[Turn]) -> int:
        """Tokens of these turns that limits are of: what a script says beside those that learn is
        bytes, and costs nothing."""
        players = self.players
        return sum(
            turn.num_tokens
            for turn in turns
            if players[turn.role].trained or not players[turn.role].reads_state
        )

    def over_limit(self, num_steps: int, num_tokens: int = 0) -> str:
        """The limit for which an episode may not go on; empty if it may."""
        if num_steps >= self.config.max_steps:
            return f"cut after {num_steps} steps (rollout.max_steps)"
        if num_tokens >= self.config.max_episode_tokens:
            return f"cut after {num_tokens} tokens (rollout.max_episode_tokens)"
        return ""

    def too_long(self, turns: Iterable[Turn], num_steps: int) -> str:
        """Why a prompt was too long, if it is the replies before it that made it so. A first prompt
        that is too long is nobody's doing, and remains a failure."""
        found = (turn.credit.failure for turn in turns)
        reason = next((f.reason for f in found if isinstance(f, PromptTooLong)), "")
        return reason if num_steps and self.config.on_limit != "exclude" else ""

    def _question(
        self,
        at: Position,
        task: Task,
        role: str,
        messages: tuple[Message, ...],
        num_samples: int,
        max_tokens: int,
    ) -> Question:
        return Question(
            role=role,
            messages=messages,
            state=at.state,
            task_id=task.id,
            seed=derive_seed(at.seed, "ask", role),
            num_samples=num_samples,
            max_tokens=min(max_tokens, self.config.max_reply_tokens),
            seconds=self.config.sampler_timeout,
        )

    # What follows runs inside the guard: an answer of the environment that is not what the
    # contract says is its failure, like an exception.

    def _acting(self, state: Any) -> tuple[str, ...]:
        roles = tuple(self.env.acting(state))
        if unknown := [role for role in roles if role not in self.players]:
            raise ValueError(f"no such role: {', '.join(map(str, unknown))}")
        return roles

    def _observe(self, state: Any, role: str) -> tuple[Message, ...]:
        messages = tuple(self.env.observe(state, role))
        if not messages or not all(isinstance(message, Message) for message in messages):
            raise TypeError(f"'{role}' is shown {messages!r:.60}, which are not messages")
        return messages

    def _silence(self, state: Any, role: str) -> str:
        text: object = self.env.silence(state, role)
        if not isinstance(text, str):
            raise TypeError(f"the silence of '{role}' is {text!r:.60}, which is no reply")
        return text

    def _centralized(self, state: Any, role: str) -> tuple[Message, ...]:
        messages = tuple(self.env.centralized_observation(state))
        if not messages or not all(isinstance(message, Message) for message in messages):
            raise TypeError(f"the critic is shown {messages!r:.60}, which are not messages")
        *before, last = messages
        return (*before, replace(last, content=f"{last.content}\n\n{role} speaks now."))

    def _step(
        self, state: Any, replies: Mapping[str, str]
    ) -> tuple[StepResult[Any], dict[str, float]]:
        with refused_calls() as refused:
            result: Any = self.env.step(state, replies)
        if not isinstance(result, StepResult) or not isinstance(result.rewards, Rewards):
            raise TypeError(f"{result!r:.60} is not a StepResult with Rewards")
        metrics = {str(name): float(value) for name, value in result.metrics.items()}
        if wrong := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise ValueError(f"metrics are not finite: {', '.join(wrong)}")
        metrics |= to_metrics(refused)
        if unknown := [role for role in result.submissions if role not in (TEAM, *self.players)]:
            raise ValueError(f"submissions of no role: {', '.join(unknown)}")
        if unknown := [role for role in result.rewards.agent if role not in self.players]:
            raise ValueError(f"agent rewards of no role: {', '.join(map(str, unknown))}")
        if silent := [role for role in result.rewards.process if role not in replies]:
            raise ValueError(
                f"process rewards of {', '.join(map(str, silent))}, who gave no reply in this step"
            )
        return result, metrics

    def _success(self, state: Any) -> dict[str, bool]:
        return successes(self.env, state)

    def _answers(self, state: Any) -> dict[str, str]:
        found: dict[str, Any] = {role: self.env.answer(state, role) for role in self.env.roles}
        given = {role: answer for role, answer in found.items() if answer is not None}
        if wrong := [role for role, answer in given.items() if not isinstance(answer, str)]:
            raise TypeError(
                f"the answer of '{wrong[0]}' is {given[wrong[0]]!r:.60}, which is no text"
            )
        return given
