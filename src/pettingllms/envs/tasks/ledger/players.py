"""Scripted readers and combiners: random amounts in the right format, and exact ones."""

import random
import re
from collections.abc import Mapping
from typing import Any

from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.tasks.ledger.rows import answer_in_part
from pettingllms.envs.toolkit.noisy import noisy

NOTHING = "none"
"""A reader's note that its part does not answer the question."""
COMBINER = "combiner"


def numbers_in(notes: tuple[str | None, ...]) -> list[int]:
    """All numbers in the notes, in order."""
    return [int(number) for note in notes for number in re.findall(r"\b[0-9]{1,6}\b", note or "")]


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any amount that the role sees; a reader may also report that it found none."""
    if role == COMBINER:
        return str(env.reply_of(str(rng.choice(numbers_in(state.notes) or [0]))))
    may_pass = state.sheet.wanted is not None and not env.config.solo
    if may_pass and rng.random() < 0.5:
        return str(env.reply_of(NOTHING))
    return str(env.reply_of(str(rng.choice(env.part_of(state, role))[1])))


def play_exact(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The answer of the reader's part, and the answer that follows from the notes."""
    if role == COMBINER:
        return str(env.reply_of(str(max(numbers_in(state.notes) or [0]))))
    found = answer_in_part(env.part_of(state, role), state.sheet.wanted)
    return str(env.reply_of(NOTHING if found is None else str(found)))


def play_blind(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """The largest amount that any ledger can have, without reading."""
    return str(env.reply_of("9" * env.config.num_digits))


PLAYERS: Mapping[str, ScriptedPlayer] = {
    "random": play_random,
    "noisy": noisy(play_exact, play_random, 0.5),
    "exact": play_exact,
    "blind": play_blind,
}
