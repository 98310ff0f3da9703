"""Negotiation: alternating offers between a seller and a buyer with private values."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.games.negotiation import players
from pettingllms.envs.games.negotiation.judging import parts_of, submission_of
from pettingllms.envs.games.negotiation.replies import (
    BUYER,
    ROLES,
    SELLER,
    Bargain,
    Said,
    gain,
    hint_text,
    offered_price,
    read_reply,
    rules_text,
    story_text,
    terse_text,
)
from pettingllms.envs.solo import SoloOneRole
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.envs.toolkit.rule_rewards import rule_reward
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Message, Reward, Rewards, Scored, Submission, Task, system, user


class NegotiationConfig(EnvConfig):
    """Options of negotiation."""

    max_price: int = Field(default=20, ge=2, le=1000)
    """Highest price. Prices, cost and value are integers from 0 to it."""
    max_turns: int = Field(default=6, ge=1, le=40)
    """Total number of turns before the talks end without a deal."""
    talk: bool = True
    """Whether an offer may include a message."""
    always_gain: bool = True
    """Whether the buyer's value always exceeds the seller's cost. If false, some tasks have no
    profitable deal."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """Discount factor per turn; below 1, delay costs both roles."""
    num_tasks: int = Field(default=1024, ge=1)
    """Negotiations per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply; the turn passes without an offer."""
    opponent: Literal["random", "conceder", "stubborn"] = "conceder"
    """Solo: the scripted opponent."""


class Negotiation(Environment[Bargain, NegotiationConfig]):
    """General-sum, sequential, private values. The seller makes the first offer."""

    id = "negotiation-v1"
    Config = NegotiationConfig
    players = players.PLAYERS
    late_rewards = True
    submits = True
    limit_reward = -1.0
    rule_parts = ("fairness", "coherence")

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Bargain:
        rng = random.Random(derive_seed("negotiation", task.seed, seed))
        return Bargain(*self._draw_numbers(rng))

    def acting(self, state: Bargain) -> tuple[str, ...]:
        if state.ended or len(state.said) >= self.config.max_turns:
            return ()
        return (ROLES[len(state.said) % 2],)

    def observe(self, state: Bargain, role: str) -> Sequence[Message]:
        turns_left = self.config.max_turns - len(state.said)
        if self.config.terse:
            return [user(terse_text(state, role, turns_left))]
        asked = self.acting(state) == (role,)
        return [
            system(rules_text(self.config, role)),
            user(story_text(self.config, state, role, asked, turns_left)),
        ]

    def step(self, state: Bargain, replies: Mapping[str, str]) -> StepResult[Bargain]:
        (mover,) = self.acting(state)
        process: dict[str, Reward] = {}
        try:
            said = read_reply(self.config, state, replies[mover])
        except BadReply:
            said = Said("nothing")
            process = {mover: Scored(self.config.illegal_reward)}
        price = offered_price(state)
        after = replace(
            state,
            said=(*state.said, said),
            ended=said.kind in ("accept", "leave"),
            price=price if said.kind == "accept" else None,
        )
        metrics = {"illegal": float(bool(process))}
        if self.acting(after):
            return StepResult(after, Rewards(process), metrics)
        metrics |= {"deal": float(after.price is not None), "turns": float(len(after.said))}
        agent = {role: Scored(self.final_reward(after, role)) for role in ROLES}
        return StepResult(after, Rewards(process, agent), metrics, {TEAM: submission_of(after)})

    def final_reward(self, state: Bargain, role: str) -> float:
        """Discounted gain of a role, divided by the highest price."""
        discount = self.config.discount ** (len(state.said) - 1)
        return discount * gain(state, role) / self.config.max_price

    def rule(self, submission: Submission, part: str = "") -> Reward:
        parts = parts_of(submission)
        return rule_reward(parts, part, sum(parts.values()) / len(parts))

    def success(self, state: Bargain, role: str) -> bool:
        """Whether the role got at least half of the surplus; without surplus, lost nothing."""
        surplus = max(0, state.value - state.cost)
        return 2 * gain(state, role) >= surplus

    def solo(self) -> SoloOneRole:
        return SoloOneRole(self, self.config.opponent)

    def redeal(self, state: Bargain, role: str, rng: random.Random) -> Bargain:
        """Resample the opponent's private value, conditioned on the role's own (by rejection)."""
        while True:
            cost, value = self._draw_numbers(rng)
            if role == SELLER and (not self.config.always_gain or value > state.cost):
                return replace(state, value=value)
            if role == BUYER and (not self.config.always_gain or cost < state.value):
                return replace(state, cost=cost)

    def silence(self, state: Bargain, role: str) -> str:
        """Leave: no reply means no deal."""
        return self.reply_of("leave")

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Bargain, role: str) -> str:
        return hint_text(self.config, state)

    def draw(self, state: Bargain, role: str) -> str:
        from rich.markup import escape

        asked, left = self.acting(state) == (role,), self.config.max_turns - len(state.said)
        return escape(story_text(self.config, state, role, asked, left))

    def _draw_numbers(self, rng: random.Random) -> tuple[int, int]:
        """The seller's cost and the buyer's value."""
        while True:
            cost, value = (rng.randint(0, self.config.max_price) for _ in range(2))
            if value > cost or not self.config.always_gain:
                return cost, value
