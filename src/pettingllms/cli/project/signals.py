"""A signaling game: the sender sees a color and sends a letter, the receiver names the color.

A fixed code maps each color to a letter. The sender gets a small process reward for following it,
and the team gets a reward if the receiver names the right color. No prompt contains the code, so
the team has to learn it. Only the first character of a reply counts.
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
    """The color, and the replies so far."""

    color: str
    letter: str | None = None
    named: str | None = None


def random_reply(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """A random legal reply."""
    return rng.choice(LETTERS if role == "sender" else INITIALS)


def code_reply(env: "Signals", state: State, role: str, rng: random.Random) -> str:
    """The reply that follows the code."""
    if role == "sender":
        return CODE[state.color]
    return INITIALS[LETTERS.index(state.letter)] if state.letter in LETTERS else INITIALS[0]


class Signals(pl.Environment[State, pl.EnvConfig]):
    """One reply by the sender, then one by the receiver."""

    id = "signals-v1"
    roles = ("sender", "receiver")
    players = {"random": random_reply, "in_order": code_reply}
    late_rewards = True  # the reward for a letter arrives when the receiver names the color

    def tasks(self, split: str) -> Sequence[pl.Task]:
        """One color per task. Both splits contain the same four colors under different ids."""
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
        action = reply.strip().lower()[:1]
        legal = LETTERS if role == "sender" else INITIALS
        action = action if action in legal else "?"
        reward = -0.5 if action == "?" else 0.0  # accept every string, but penalize illegal ones
        if role == "sender":
            reward += 0.5 * (action == CODE[state.color])
            rewards = pl.Rewards(process={role: pl.Scored(reward)})
            return pl.StepResult(replace(state, letter=action), rewards)
        team = pl.Scored(1.0 if action == state.color[0] else 0.0)
        rewards = pl.Rewards(process={role: pl.Scored(reward)}, team=team)
        return pl.StepResult(replace(state, named=action), rewards)

    def success(self, state: State, role: str) -> bool:
        return state.named == state.color[0]
