"""Negotiation: a seller and a buyer, each with a number that the other must not know."""

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
    price_on_the_table,
    read_reply,
    rules_text,
    story_text,
    terse_text,
)
from pettingllms.envs.solo import SoloOneRole
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.envs.toolkit.rules import told
from pettingllms.seeds import derive_seed
from pettingllms.types import TEAM, Message, Reward, Rewards, Scored, Submission, Task, system, user


class NegotiationConfig(EnvConfig):
    """Options of negotiation."""

    max_price: int = Field(default=20, ge=2, le=1000)
    """Prices go from 0 to this, and so do cost and value."""
    max_turns: int = Field(default=6, ge=1, le=40)
    """Replies of both together before the talks end without a deal."""
    talk: bool = True
    """Whether a message may go with an offer."""
    always_gain: bool = True
    """Whether the buyer's value is always above the seller's cost. If not, some deals should not
    be made."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """What a gain is worth after each turn that has passed; below 1, waiting costs both."""
    num_tasks: int = Field(default=1024, ge=1)
    """Plays in a split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward of a reply that is refused; the turn passes without an offer."""
    opponent: Literal["random", "conceder", "stubborn"] = "conceder"
    """Solo: the scripted player in the other seat."""


class Negotiation(Environment[Bargain, NegotiationConfig]):
    """General-sum, sequential, private values. Alternating offers, the seller's first."""

    id = "negotiation-v1"
    Config = NegotiationConfig
    players = players.PLAYERS
    late_rewards = True
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
        price = price_on_the_table(state)
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
        paid = {role: Scored(self.paid(after, role)) for role in ROLES}
        shown = {TEAM: submission_of(after)}
        return StepResult(after, Rewards(process, agent=paid), metrics, shown)

    def paid(self, state: Bargain, role: str) -> float:
        """What a finished play pays a role: its gain as a share of the highest price."""
        waited = self.config.discount ** (len(state.said) - 1)
        return waited * gain(state, role) / self.config.max_price

    def rule(self, submission: Submission, part: str = "") -> Reward:
        parts = parts_of(submission)
        return told(parts, part, sum(parts.values()) / len(parts))

    def success(self, state: Bargain, role: str) -> bool:
        """Whether the role got at least half of what there was to share, or, if there was nothing,
        lost nothing."""
        pie = max(0, state.value - state.cost)
        return 2 * gain(state, role) >= pie

    def solo(self) -> SoloOneRole:
        return SoloOneRole(self, self.config.opponent)

    def redeal(self, state: Bargain, role: str, rng: random.Random) -> Bargain:
        """The other one's number changed. It is drawn anew until it fits the role's own, which is
        how it was drawn."""
        while True:
            cost, value = self._draw_numbers(rng)
            if role == SELLER and (not self.config.always_gain or value > state.cost):
                return replace(state, value=value)
            if role == BUYER and (not self.config.always_gain or cost < state.value):
                return replace(state, cost=cost)

    def silence(self, state: Bargain, role: str) -> str:
        """Leave: who says nothing makes no deal."""
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
