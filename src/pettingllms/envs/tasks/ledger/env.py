"""A ledger too long for one reader: readers note what their parts hold, a combiner answers.

The split gives a team a structural advantage: each reader has a short text, and the combiner has
only the notes. The solo form is one role that reads the whole ledger.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import Field, model_validator

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.envs.solo import with_options
from pettingllms.envs.tasks.ledger.players import COMBINER, NOTHING, PLAYERS, numbers_in
from pettingllms.envs.tasks.ledger.rows import (
    NAMES,
    Question,
    Sheet,
    amounts_of,
    answer_in_part,
    make_sheet,
)
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in, as_reply
from pettingllms.envs.toolkit.talk import HOW_TO_TALK, checked_words
from pettingllms.types import Message, Rewards, Scored, Task, system, user

READER = "reader"
NO_NOTE = "?"
"""Shown in place of an invalid note."""
MAX_DIGITS = 6


class LedgerConfig(EnvConfig):
    """Options of the ledger."""

    num_tasks: int = Field(default=1024, ge=1)
    """Ledgers per split, each generated from its task's seed."""
    num_rows: int = Field(default=24, ge=2, le=len(NAMES))
    """Entries of a ledger."""
    num_digits: int = Field(default=3, ge=2, le=6)
    """Digits of every amount."""
    num_readers: int = Field(default=4, ge=2, le=8)
    """Readers, each with a part of the ledger."""
    question: Question = "largest"
    """`lookup`: the amount of one entry, which only one reader sees. `largest`: the largest amount,
    so every reader's note counts."""
    illegal_reward: float = -0.1
    """Process reward of an invalid reply, which counts as no note or no answer."""

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if self.num_rows > len(amounts_of(self.num_digits)):
            raise ValueError(
                f"num_rows is {self.num_rows}, but num_digits = {self.num_digits} allows "
                f"{len(amounts_of(self.num_digits))} different amounts; set more digits"
            )
        if self.num_rows < self.num_readers:
            raise ValueError(
                f"num_rows is {self.num_rows}, but num_readers is {self.num_readers}, and each "
                "reader needs an entry; set more rows or fewer readers"
            )
        return self


@dataclass(frozen=True, slots=True)
class Reading:
    """A ledger, the readers' notes once they are written, and the answer."""

    sheet: Sheet
    notes: tuple[str | None, ...] | None = None
    """One per reader; None in place of an invalid one."""
    answer: int | None = None
    over: bool = False


class Ledger(Environment[Reading, LedgerConfig]):
    """Cooperative: readers reply simultaneously, then the combiner. Solo, one reader answers."""

    id = "ledger-v1"
    Config = LedgerConfig
    players = PLAYERS
    limit_level = "team"
    late_rewards = True  # the team is rewarded for the combiner's answer

    @property
    def readers(self) -> tuple[str, ...]:
        """The roles that see entries."""
        if self.config.solo:
            return (READER,)
        return tuple(f"{READER}_{at + 1}" for at in range(self.config.num_readers))

    @property
    def roles(self) -> tuple[str, ...]:
        return self.readers if self.config.solo else (*self.readers, COMBINER)

    def solo(self) -> Environment[Any, Any]:
        return with_options(self, solo=True)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reset(self, task: Task, seed: int) -> Reading:
        options = self.config
        return Reading(
            make_sheet(task.seed, options.num_rows, options.num_digits, options.question)
        )

    def acting(self, state: Reading) -> tuple[str, ...]:
        if state.over:
            return ()
        return self.readers if state.notes is None else (COMBINER,)

    def part_of(self, state: Reading, role: str) -> tuple[tuple[str, int], ...]:
        """The entries that a reader sees."""
        return state.sheet.part(self.readers.index(role), len(self.readers))

    def observe(self, state: Reading, role: str) -> Sequence[Message]:
        if self.config.terse:
            return [user("\n".join(self._tersely(state, role)))]
        if role == COMBINER:
            notes = zip(self.readers, state.notes or (), strict=False)
            lines = ["Notes:", *(f"{name}: {note or NO_NOTE}" for name, note in notes)]
        else:
            lines = [f"{name}: {amount}" for name, amount in self.part_of(state, role)]
        return [system(self._part(role)), user("\n".join([*lines, "", _question(state)]))]

    def step(self, state: Reading, replies: Mapping[str, str]) -> StepResult[Reading]:
        if state.notes is None and not self.config.solo:
            return self._take_notes(state, replies)
        (role,) = self.acting(state)
        try:
            answer = _number_in(answer_in(replies[role], self.config.terse))
        except BadReply:
            answer = None
        after = replace(state, answer=answer, over=True)
        process = {role: Scored(self.config.illegal_reward)} if answer is None else {}
        right = float(self.success(after, role))
        metrics = {"illegal": float(answer is None), "right": right}
        return StepResult(after, Rewards(process, team=Scored(right)), metrics)

    def success(self, state: Reading, role: str) -> bool:
        return state.answer == state.sheet.truth

    def answer(self, state: Reading, role: str) -> str | None:
        return None if state.answer is None else str(state.answer)

    def redeal(self, state: Reading, role: str, rng: random.Random) -> Reading:
        """Other amounts in the entries that the role does not see."""
        seen = {} if role == COMBINER else dict(self.part_of(state, role))
        amounts = amounts_of(self.config.num_digits)
        free = [one for one in amounts if one not in seen.values()]
        drawn = iter(rng.sample(free, len(state.sheet.rows) - len(seen)))
        rows = tuple(
            (name, seen[name] if name in seen else next(drawn)) for name, _ in state.sheet.rows
        )
        return replace(state, sheet=replace(state.sheet, rows=rows))

    def silence(self, state: Reading, role: str) -> str:
        """A note without a finding, or the first number of the notes as the answer."""
        if state.notes is None and not self.config.solo:
            return self.reply_of(NOTHING)
        return self.reply_of(str((numbers_in(state.notes or ()) or [0])[0]))

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def hint(self, state: Reading, role: str) -> str:
        return "a number" if role in (COMBINER, READER) else "what the combiner should know"

    def _take_notes(self, state: Reading, replies: Mapping[str, str]) -> StepResult[Reading]:
        notes = tuple(self._note_in(replies[role]) for role in self.readers)
        bad = [role for role, note in zip(self.readers, notes, strict=True) if note is None]
        process = dict.fromkeys(bad, Scored(self.config.illegal_reward))
        wanted = state.sheet.wanted
        held = [answer_in_part(self.part_of(state, role), wanted) for role in self.readers]
        noted = [_is_noted(note, one) for note, one in zip(notes, held, strict=True)]
        metrics = {"illegal": float(bool(bad)), "notes_right": sum(noted) / len(noted)}
        return StepResult(replace(state, notes=notes), Rewards(process), metrics)

    def _note_in(self, reply: str) -> str | None:
        try:
            return checked_words(answer_in(reply, self.config.terse))
        except BadReply:
            return None

    def _tersely(self, state: Reading, role: str) -> list[str]:
        """The notes or entries, and the question. Names appear only if the question has one."""
        wanted = state.sheet.wanted
        asked = "largest?" if wanted is None else f"amount of {wanted}?"
        if role == COMBINER:
            return ["notes", *(note or NO_NOTE for note in state.notes or ()), asked]
        rows = self.part_of(state, role)
        shown = [f"{amount}" if wanted is None else f"{name} {amount}" for name, amount in rows]
        return ["entries", *shown, asked]

    def _part(self, role: str) -> str:
        count = self.config.num_readers
        number = f"Your answer is the number alone. {HOW_TO_ANSWER}"
        if role == READER:
            return f"You answer a question about a ledger. {number}"
        if role == COMBINER:
            return (
                f"You are the combiner: {count} readers have each read a part of a ledger, and you "
                f"see their notes. Answer the question about the whole ledger. {number}"
            )
        return (
            f"You are one of {count} readers of a ledger. Each reads a part and writes a note to a "
            "combiner, who sees only the notes and answers a question about the whole ledger. If "
            f"your part does not answer it, note {NOTHING}. Your answer is the note: "
            f"{HOW_TO_TALK}. {HOW_TO_ANSWER}"
        )


def _question(state: Reading) -> str:
    wanted = state.sheet.wanted
    return "What is the largest amount?" if wanted is None else f"What is the amount of {wanted}?"


def _number_in(answer: str) -> int:
    if not (answer.isascii() and answer.isdigit()) or len(answer) > MAX_DIGITS:
        raise BadReply(f"{answer[:20]!r} is not a number of up to {MAX_DIGITS} digits")
    return int(answer)


def _is_noted(note: str | None, held: int | None) -> bool:
    """Whether a note has exactly what its part holds."""
    return numbers_in((note,)) == ([] if held is None else [held]) and note is not None
