"""Stories: two writers alternate sentences, and a judge scores the result.

There is no reference story, so the only reward is the judge's score of the whole. With `rivals`,
each role writes a separate story and the judge compares the two.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks, halved_seed, of_half
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.envs.tasks.story import players
from pettingllms.envs.tasks.story.premises import Premise, make_premise, parts_of, total_score
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.rule_rewards import rule_reward
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.seeds import derive_seed
from pettingllms.types import (
    TEAM,
    Message,
    Reward,
    Rewards,
    Scored,
    Submission,
    Task,
    system,
    user,
)

ROLES = ("writer_1", "writer_2")
GOOD = 0.75
"""Minimum rule score of a successful story."""
CRITERIA = (
    "Look at two things: consistency, whether the story keeps to what is given and does not "
    "contradict itself; and creativity, whether something happens that is told in fresh words. "
    "Filling and repetition are worth nothing."
)


class StoryConfig(EnvConfig):
    """Options of `story-v1`."""

    num_rounds: int = Field(default=3, ge=1, le=20)
    """Number of sentences per writer."""
    rivals: bool = False
    """Whether each role writes a separate story, hidden from the other, instead of a joint one."""
    num_tasks: int = Field(default=1024, ge=1)
    """Premises per split, each generated from its task's seed."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply; it adds no sentence."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The premise, and every sentence with its writer; empty for an invalid reply."""

    premise: Premise
    sentences: tuple[tuple[str, str], ...] = ()

    def story_of(self, role: str) -> list[str]:
        """The sentences of this role's story."""
        return [text for _, text in self.sentences]


@dataclass(frozen=True, slots=True)
class Rivals(Draft):
    """A draft in which each role has a separate story."""

    def story_of(self, role: str) -> list[str]:
        return [text for who, text in self.sentences if who == role]


class Story(Environment[Draft, StoryConfig]):
    """Cooperative and sequential, or with `rivals` zero-sum and simultaneous. Scored by a judge."""

    id = "story-v1"
    Config = StoryConfig
    players = players.PLAYERS
    late_rewards = True
    judged = True
    rule_parts = ("consistency", "coverage", "variety")

    def __init__(self, config: StoryConfig | None = None) -> None:
        super().__init__(config)
        self.limit_level = "agent" if self.config.rivals else "team"

    @property
    def roles(self) -> tuple[str, ...]:
        return ROLES

    def solo(self) -> Environment[Any, Any]:
        if self.config.rivals:
            return super().solo()
        return SoloAllRoles(self)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks, halved_seed)

    def reset(self, task: Task, seed: int) -> Draft:
        premise = of_half(
            task.seed % 2,
            lambda attempt: make_premise(random.Random(derive_seed("story", task.seed, attempt))),
            repr,
        )
        return (Rivals if self.config.rivals else Draft)(premise)

    def acting(self, state: Draft) -> tuple[str, ...]:
        if len(state.sentences) >= self._num_sentences * (2 if self.config.rivals else 1):
            return ()
        return ROLES if self.config.rivals else (ROLES[len(state.sentences) % 2],)

    def observe(self, state: Draft, role: str) -> Sequence[Message]:
        so_far = [text for text in state.story_of(role) if text]
        if self.config.terse:
            given = " ".join((*state.premise.needed, *state.premise.setting))
            return [user("\n".join([given, *so_far]))]
        return [
            system(_part(self.config)),
            user("\n".join([_asked(state.premise), "So far:", *(so_far or ["nothing yet."])])),
        ]

    def step(self, state: Draft, replies: Mapping[str, str]) -> StepResult[Draft]:
        process: dict[str, Reward] = {}
        added = []
        for role in self.acting(state):
            try:
                added.append((role, checked_words(answer_in(replies[role], self.config.terse))))
                process[role] = Scored(0.0)
            except BadReply:
                added.append((role, ""))
                process[role] = Scored(self.config.illegal_reward)
        after = replace(state, sentences=(*state.sentences, *added))
        metrics = {"illegal": float(any(not text for _, text in added))}
        if self.acting(after):
            return StepResult(after, Rewards(process), metrics)
        writers = ROLES if self.config.rivals else (TEAM,)
        shown = {role: self.submission(after, role) for role in writers}
        return StepResult(after, Rewards(process), metrics, shown)

    def submission(self, state: Draft, role: str) -> Submission:
        """A finished story, for a judge."""
        sentences = [text for text in state.story_of(role) if text]
        premise = state.premise
        facts = {"needed": list(premise.needed), "setting": list(premise.setting)}
        return Submission(_asked(premise), "\n".join(sentences), CRITERIA, facts)

    def rule(self, submission: Submission, part: str = "") -> Reward:
        hero, place, thing = submission.facts["needed"]
        premise = Premise(hero, place, thing, tuple(submission.facts["setting"]))
        parts = parts_of(premise, submission.answer.split("\n"), self._num_sentences)
        return rule_reward(parts, part, total_score(parts))

    def success(self, state: Draft, role: str) -> bool:
        verdict = self.rule(self.submission(state, role))
        return isinstance(verdict, Scored) and verdict.value >= GOOD

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Draft, role: str) -> str:
        return "the next sentence"

    @property
    def _num_sentences(self) -> int:
        """Number of sentences of one story."""
        return self.config.num_rounds * (1 if self.config.rivals else 2)


def _asked(premise: Premise) -> str:
    season, hour, weather = premise.setting
    return (
        f"A short story about a {premise.hero}, a {premise.place} and a {premise.thing}. It is "
        f"{season}, it begins in the {hour}, and there is {weather}."
    )


def _part(config: StoryConfig) -> str:
    if config.rivals:
        how = "You write a story alone; somebody else writes another about the same, and a judge "
        how += "compares them."
    else:
        how = "You and another writer tell one story by turns, and a judge reads the whole."
    return (
        f"{how} Your turn is one sentence, {HOW_TO_TALK}. Keep to what is given, contradict "
        "nothing that was told, and let something happen in words that were not used before. "
        f"{HOW_TO_ANSWER}"
    )
