"""What a domain of tasks provides: ingredients, a parser, answers, and a generator.

A domain decides everything about a proposal with code of ours. It never evaluates text, and it
rejects long text before it reads it, so its time is linear in the length of a reply.
"""

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass

from pettingllms.envs.toolkit.answers import BadReply

MAX_LEVEL = 6
"""Highest level of measured difficulty."""
NUM_TRIES = 64
"""Attempts of a generator before it falls back to its simplest task."""


@dataclass(frozen=True, slots=True)
class ProposedTask:
    """A valid task in canonical form. Solvers are shown `text`, never what the proposer wrote."""

    text: str
    """The same for all spellings of one task."""
    answer: str
    level: int
    """Measured difficulty, from 1 to MAX_LEVEL, computed from the task alone."""
    trivial: str = ""
    """Why no skill is needed to solve it; empty if it is not trivial."""


class Domain(ABC):
    """One kind of tasks. Objects have no state besides their options."""

    proposer_rules: str
    """How to write a task."""
    solver_rules: str
    """How to answer one."""
    max_letters: int
    """Maximum length of a proposal and of an answer."""

    def checked(self, text: str) -> str:
        """The text without spaces; BadReply if it is too long."""
        if len(text) > self.max_letters:
            raise BadReply(f"it has more than {self.max_letters} letters")
        return "".join(text.split())

    @abstractmethod
    def draw(self, rng: random.Random) -> tuple[str, ...]:
        """Ingredients that a task must use."""

    @abstractmethod
    def parse(self, text: str, given: tuple[str, ...]) -> ProposedTask:
        """The task that a text proposes; BadReply if it is no valid task of these ingredients.

        The reason quotes nothing of the text.
        """

    @abstractmethod
    def write(self, given: tuple[str, ...], rng: random.Random) -> str:
        """A random valid task of these ingredients that is not trivial."""

    @abstractmethod
    def read(self, text: str) -> str:
        """An answer in canonical form; BadReply if it is none."""

    @abstractmethod
    def guess(self, task: ProposedTask, rng: random.Random) -> str:
        """A legal answer that ignores what the task asks, for scripted players."""

    def generate(self, rng: random.Random) -> ProposedTask:
        """A task from our generator, as held-out tasks are made."""
        given = self.draw(rng)
        return self.parse(self.write(given, rng), given)
