"""A game of signals: one role sees a colour and says a letter, the other names the colour.

There is a code: the first letter stands for the first colour, and so on. The sender is paid a bit
for keeping to it, and the team for every colour that arrives. Nobody tells the receiver the code.
Of a reply the first letter counts.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pettingllms as pl

COLOURS = ("red", "green", "white", "yellow")
INITIALS = tuple(colour[0] for colour in COLOURS)
LETTERS = ("a", "b", "c", "d")
CODE = dict(zip(COLOURS, LETTERS, strict=True))


@dataclass(frozen=True)
class State:
    """A play so far: what is to be told, what was said."""

    colour: str
    letter: str | None = None
    named: str | None = None


def say_any(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """A legal reply, whatever was seen."""
    return rng.choice(LETTERS if role == "sender" else INITIALS)


def say_in_order(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """The code, kept by both."""
    if role == "sender":
        return CODE[state.colour]
    return INITIALS[LETTERS.index(state.letter)] if state.letter in LETTERS else INITIALS[0]


class Signals(pl.Environment[State, pl.EnvConfig]):
    """Sender and receiver, one reply each."""

    id = "signals-v1"
    roles = ("sender", "receiver")
    players = {"random": say_any, "in_order": say_in_order}
    late_rewards = True  # what a letter is worth shows when the colour is named

    def tasks(self, split: str) -> Sequence[pl.Task]:
        """Colours in turn. Only the ids differ between the splits: there are four colours."""
        return [
            pl.Task(f"{split}-{n}", {"colour": COLOURS[n % len(COLOURS)]}, seed=n)
            for n in range(400)
        ]

    def reset(self, task: pl.Task, seed: int) -> State:
        return State(str(task.data["colour"]))

    def acting(self, state: State) -> tuple[str, ...]:
        if state.letter is None:
            return ("sender",)
        return ("receiver",) if state.named is None else ()

    def observe(self, state: State, role: str) -> Sequence[pl.Message]:
        if role == "sender":
            return [pl.user(f"see {state.colour}")]
        return [pl.user(f"hear {state.letter}")]

    def step(self, state: State, replies: Mapping[str, str]) -> pl.StepResult[State]:
        ((role, reply),) = replies.items()
        said = reply.strip().lower()[:1]
        known = LETTERS if role == "sender" else INITIALS
        said = said if said in known else "?"
        worth = -0.5 if said == "?" else 0.0  # any string is a reply, at a price
        if role == "sender":
            worth += 0.5 * (said == CODE[state.colour])
            told = pl.Rewards(process={role: pl.Scored(worth)})
            return pl.StepResult(replace(state, letter=said), told)
        right = pl.Scored(1.0 if said == state.colour[0] else 0.0)
        named = pl.Rewards(process={role: pl.Scored(worth)}, team=right)
        return pl.StepResult(replace(state, named=said), named)

    def success(self, state: State, role: str) -> bool:
        return state.named == state.colour[0]
