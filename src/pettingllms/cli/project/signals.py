"""A signaling game: one role sees a color and sends a letter, the other names the color.

The code maps the first letter to the first color, and so on. The sender gets a small reward for
following it, and the team a reward for every correct color. The receiver has to learn the code.
Only the first letter of a reply counts.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pettingllms as pl

COLORS = ("red", "green", "white", "yellow")
INITIALS = tuple(color[0] for color in COLORS)
LETTERS = ("a", "b", "c", "d")
CODE = dict(zip(COLORS, LETTERS, strict=True))


@dataclass(frozen=True)
class State:
    """The color, the letter that was sent, and the color that was named."""

    color: str
    letter: str | None = None
    named: str | None = None


def reply_random(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """A random legal reply."""
    return rng.choice(LETTERS if role == "sender" else INITIALS)


def reply_in_order(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """The reply that follows the code."""
    if role == "sender":
        return CODE[state.color]
    return INITIALS[LETTERS.index(state.letter)] if state.letter in LETTERS else INITIALS[0]


class Signals(pl.Environment[State, pl.EnvConfig]):
    """Sender and receiver, one reply each."""

    id = "signals-v1"
    roles = ("sender", "receiver")
    players = {"random": reply_random, "in_order": reply_in_order}
    late_rewards = True  # the sender's team reward comes with the receiver's reply

    def tasks(self, split: str) -> Sequence[pl.Task]:
        """Colors in turn. With four colors, only the ids differ between the splits."""
        return [
            pl.Task(f"{split}-{n}", {"color": COLORS[n % len(COLORS)]}, seed=n) for n in range(400)
        ]

    def reset(self, task: pl.Task, seed: int) -> State:
        return State(str(task.data["color"]))

    def acting(self, state: State) -> tuple[str, ...]:
        if state.letter is None:
            return ("sender",)
        return ("receiver",) if state.named is None else ()

    def observe(self, state: State, role: str) -> Sequence[pl.Message]:
        if role == "sender":
            return [pl.user(f"see {state.color}")]
        return [pl.user(f"hear {state.letter}")]

    def step(self, state: State, replies: Mapping[str, str]) -> pl.StepResult[State]:
        ((role, reply),) = replies.items()
        letter = reply.strip().lower()[:1]
        known = LETTERS if role == "sender" else INITIALS
        letter = letter if letter in known else "?"
        reward = -0.5 if letter == "?" else 0.0  # any string is a legal reply
        if role == "sender":
            reward += 0.5 * (letter == CODE[state.color])
            rewards = pl.Rewards(process={role: pl.Scored(reward)})
            return pl.StepResult(replace(state, letter=letter), rewards)
        team = pl.Scored(1.0 if letter == state.color[0] else 0.0)
        rewards = pl.Rewards(process={role: pl.Scored(reward)}, team=team)
        return pl.StepResult(replace(state, named=letter), rewards)

    def success(self, state: State, role: str) -> bool:
        return state.named == state.color[0]
