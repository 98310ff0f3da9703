"""Werewolf: a social deduction game with hidden roles, discussion and votes."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.games.werewolf import players
from pettingllms.envs.games.werewolf.prompts import PASS, called, rules_text, story_text, terse_text
from pettingllms.envs.games.werewolf.rules import (
    NO_PLAYER,
    VILLAGE,
    Village,
    after_night,
    after_vote,
    after_words,
)
from pettingllms.envs.toolkit.answers import BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Reward, Rewards, Scored, Task, system, user


class WerewolfConfig(EnvConfig):
    """Options of werewolf."""

    num_players: int = Field(default=6, ge=5, le=8)
    """Number of players, including wolves and seer."""
    num_wolves: int = Field(default=1, ge=1, le=2)
    """Number of wolves. Two wolves need at least seven players."""
    num_talks: int = Field(default=1, ge=0, le=4)
    """Messages per player before every vote."""
    max_days: int = Field(default=6, ge=1, le=20)
    """The wolves win after this many days."""
    num_tasks: int = Field(default=1024, ge=1)
    """Games per split. They differ only in their seeds."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply, which counts as no message or no choice."""

    @model_validator(mode="after")
    def _check_num_wolves(self) -> Self:
        if self.num_wolves == 2 and self.num_players < 7:
            raise ValueError(
                f"num_wolves = 2 is too strong for num_players = {self.num_players}; set "
                "num_players = 7 or 8, or num_wolves = 1"
            )
        return self


class Werewolf(Environment[Village, WerewolfConfig]):
    """Two teams, hidden roles. Nights and votes are simultaneous; players talk in turn."""

    id = "werewolf-v1"
    Config = WerewolfConfig
    players = players.PLAYERS
    late_rewards = True
    limit_reward = -1.0

    def __init__(self, config: WerewolfConfig | None = None) -> None:
        super().__init__(config)
        wolves = [f"wolf_{at + 1}" for at in range(self.config.num_wolves)]
        num_villagers = self.config.num_players - len(wolves) - 1
        self._roles = (*wolves, "seer", *(f"villager_{at + 1}" for at in range(num_villagers)))

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Village:
        rng = random.Random(derive_seed("werewolf", task.seed, seed))
        names = rng.sample(range(1, len(self.roles) + 1), len(self.roles))
        return Village(tuple(names), self.config.num_wolves, (True,) * len(names))

    def acting(self, state: Village) -> tuple[str, ...]:
        return tuple(self.roles[position] for position in state.acting())

    def observe(self, state: Village, role: str) -> Sequence[Message]:
        position = self.roles.index(role)
        if self.config.terse:
            return [user(terse_text(state, position))]
        asked = role in self.acting(state)
        return [
            system(rules_text(self.config, state, position)),
            user(story_text(state, position, asked)),
        ]

    def step(self, state: Village, replies: Mapping[str, str]) -> StepResult[Village]:
        process: dict[str, Reward] = {}
        said: dict[int, str] = {}
        chosen: dict[int, int] = {}
        for role in self.acting(state):
            position = self.roles.index(role)
            try:
                answer = answer_in(replies[role], self.config.terse)
                if state.phase == "talk":
                    words = checked_words(answer)
                    said[position] = "" if words.lower() == PASS else words
                else:
                    chosen[position] = _chosen(state, position, answer)
            except BadReply:
                said[position], chosen[position] = "", NO_PLAYER
                process[role] = Scored(self.config.illegal_reward)
        after = self._after(state, said, chosen)
        metrics = {"illegal": float(len(process))}
        if after.winner is None:
            return StepResult(after, Rewards(process), metrics)
        metrics |= {"village_won": float(after.winner == VILLAGE), "days": float(after.day)}
        agent = {role: Scored(1.0 if self.success(after, role) else -1.0) for role in self.roles}
        return StepResult(after, Rewards(process, agent), metrics)

    def success(self, state: Village, role: str) -> bool:
        return state.winner == state.side(self.roles.index(role))

    def redeal(self, state: Village, role: str, rng: random.Random) -> Village:
        """Reassign the names of living players whose roles are unknown to this role."""
        me = self.roles.index(role)
        free = [position for position in state.living() if position not in _known(state, me)]
        names = list(state.names)
        shuffled = rng.sample([names[position] for position in free], len(free))
        for position, name in zip(free, shuffled, strict=True):
            names[position] = name
        return replace(state, names=tuple(names))

    def silence(self, state: Village, role: str) -> str:
        """No message, or a vote for no player."""
        return self.reply_of(PASS if state.phase == "talk" else called(NO_PLAYER))

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Village, role: str) -> str:
        if state.phase == "talk":
            return f"a message to all ({HOW_TO_TALK}), or {PASS}"
        names = [*state.choices(self.roles.index(role)), NO_PLAYER]
        return ", ".join(map(called, names))

    def draw(self, state: Village, role: str) -> str:
        from rich.markup import escape

        asked = role in self.acting(state)
        return escape(story_text(state, self.roles.index(role), asked))

    def _after(self, state: Village, said: dict[int, str], chosen: dict[int, int]) -> Village:
        if state.phase == "night":
            return after_night(state, chosen, self.config.num_talks)
        if state.phase == "vote":
            return after_vote(state, chosen, self.config.max_days)
        (words,) = said.values()
        return after_words(state, words, self.config.num_talks)


def _chosen(state: Village, position: int, answer: str) -> int:
    names = {called(name): name for name in (*state.choices(position), NO_PLAYER)}
    if answer.lower() not in names:
        raise BadReply(f"the answer is none of {', '.join(names)}")
    return names[answer.lower()]


def _known(state: Village, me: int) -> set[int]:
    """Positions whose role a player knows: its own, its fellow wolves', and those it inspected."""
    pack = set(range(state.num_wolves)) if me < state.num_wolves else set()
    found = {
        state.position_of(event.who)
        for event in state.events
        if event.kind == "found" and event.known_to == (me,)
    }
    return {me} | pack | found
