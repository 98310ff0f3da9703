"""Hanabi: a cooperative card game; players see all hands except their own."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.games.hanabi import players
from pettingllms.envs.games.hanabi.prompts import moves_text, rules_text, table_text, terse_text
from pettingllms.envs.games.hanabi.replies import move_text, name, read_move
from pettingllms.envs.games.hanabi.rules import (
    Table,
    Variant,
    after_illegal_reply,
    after_move,
    deal,
    deals,
    initial_table,
    legal_moves,
    num_deals,
)
from pettingllms.envs.games.hanabi.terminal import draw_table
from pettingllms.envs.games.hanabi.views import hidden_from, redealt
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.toolkit.answers import BadReply, as_reply
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user


class HanabiConfig(EnvConfig):
    """Options of Hanabi. The defaults are the two-player game with the full deck."""

    num_players: int = Field(default=2, ge=2, le=5)
    """Number of players."""
    num_colors: int = Field(default=5, ge=1, le=5)
    """Fireworks to build: red, yellow, green, white, blue, in this order."""
    num_ranks: int = Field(default=5, ge=1, le=5)
    """Cards on a finished firework. Rank 1 has three copies, the highest rank one, others two."""
    hand_size: int | None = Field(default=None, ge=1, le=5)
    """Cards in a hand. Default: 5 for two or three players, 4 for more."""
    max_information: int = Field(default=8, ge=1, le=20)
    """Information tokens at the start, and their maximum."""
    max_lives: int = Field(default=3, ge=1, le=20)
    """Lives at the start. Losing the last one ends the game with 0 points."""
    num_tasks: int = Field(default=1024, ge=1)
    """Deals per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply, which also costs the team a life."""

    @property
    def variant(self) -> Variant:
        """The parameters of the rules."""
        return Variant(
            self.num_players,
            self.num_colors,
            self.num_ranks,
            self.hand_size or (5 if self.num_players < 4 else 4),
            self.max_information,
            self.max_lives,
        )

    @model_validator(mode="after")
    def _check_deck_size(self) -> Self:
        variant = self.variant
        num_dealt, num_cards = variant.num_players * variant.hand_size, len(variant.cards)
        if num_dealt > num_cards:
            raise ValueError(
                f"{variant.num_players} hands of {variant.hand_size} need {num_dealt} cards, but "
                f"num_colors = {variant.num_colors} and num_ranks = {variant.num_ranks} give "
                f"{num_cards}; lower hand_size or num_players, or raise num_colors or num_ranks"
            )
        return self


class Hanabi(Environment[Table, HanabiConfig]):
    """Cooperative, sequential, hidden hands. The team reward of a step is the points gained."""

    id = "hanabi-v1"
    Config = HanabiConfig
    players = players.PLAYERS
    late_rewards = True
    limit_level = "team"

    def __init__(self, config: HanabiConfig | None = None) -> None:
        super().__init__(config)
        self.variant = self.config.variant
        self._roles = tuple(name(position) for position in range(self.variant.num_players))
        # Losing the last life loses all points, so truncation must not keep them.
        self.limit_reward = -float(self.variant.max_score)

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Table:
        return deal(self.variant, random.Random(derive_seed("hanabi", task.seed, seed)))

    def starts(self) -> Iterator[tuple[float, Table]]:
        """Every distinct deal with its probability."""
        chance = 1 / num_deals(self.variant)
        return ((chance, initial_table(self.variant, deck)) for deck in deals(self.variant))

    def legal(self, state: Table, role: str) -> list[str]:
        """All legal replies of an acting role."""
        return [self.reply_of(move_text(move)) for move in legal_moves(self.variant, state)]

    def acting(self, state: Table) -> tuple[str, ...]:
        return () if state.over(self.variant) else (name(state.mover),)

    def observe(self, state: Table, role: str) -> Sequence[Message]:
        position = self.roles.index(role)
        view = hidden_from(state, position)
        if self.config.terse:
            return [user(terse_text(self.variant, view, position))]
        return [
            system(rules_text(self.variant, position)),
            user(table_text(self.variant, view, position)),
        ]

    def step(self, state: Table, replies: Mapping[str, str]) -> StepResult[Table]:
        mover = name(state.mover)
        process: dict[str, Reward] = {}
        try:
            move = read_move(self.variant, state, replies[mover], self.config.terse)
            after = after_move(self.variant, state, move)
        except BadReply as error:
            after = after_illegal_reply(self.variant, state, str(error))
            process = {mover: Scored(self.config.illegal_reward)}
        metrics = {
            "score": float(after.score),
            "lives": float(after.lives),
            "information": float(after.information),
            "illegal": float(bool(process)),
        }
        team = Scored(float(after.score - state.score))
        return StepResult(after, Rewards(process, team=team), metrics)

    def success(self, state: Table, role: str) -> bool:
        return state.score == self.variant.max_score

    def solo(self) -> SoloAllRoles:
        return SoloAllRoles(self)

    def redeal(self, state: Table, role: str, rng: random.Random) -> Table:
        return redealt(state, self.roles.index(role), rng)

    def silence(self, state: Table, role: str) -> str:
        """Discard the oldest card, or give the last legal hint if discarding is illegal.

        Passing is not allowed, and an empty reply costs the team a life.
        """
        moves = legal_moves(self.variant, state)
        discards = [move for move in moves if move.kind == "discard"]
        return self.reply_of(move_text(next(iter(discards), moves[-1])))

    def draw(self, state: Table, role: str) -> str:
        position = self.roles.index(role)
        return draw_table(self.variant, hidden_from(state, position), position)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def refusal(self, state: Table, role: str, reply: str) -> str | None:
        try:
            read_move(self.variant, state, reply, self.config.terse)
        except BadReply as error:
            return str(error)
        return None

    def hint(self, state: Table, role: str) -> str:
        if self.acting(state) != (role,):
            return "nothing: it is not your turn"
        return moves_text(self.variant, state)
