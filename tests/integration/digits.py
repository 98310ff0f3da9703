"""One environment file for all levels: two roles that are paid for digits and for short words.

Every reply of a real model gets a reward that differs a little from the next one's, so a step of
training always has something to learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms import Environment, Message, Rewards, Scored, StepResult, Task, user


@dataclass(frozen=True)
class State:
    first: int
    said: tuple[str, ...] = ()


class Digits(Environment):
    """A counter names digits, then a namer answers."""

    id = "digits-v1"
    players = {
        "random": lambda env, state, role, rng: f"{role} says {rng.randrange(10)}",
        "namer": lambda env, state, role, rng: "1234567890",
    }

    @property
    def roles(self) -> tuple[str, ...]:
        return ("counter", "namer")

    def tasks(self, split: str) -> Sequence[Task]:
        start = 0 if split == "train" else 1000
        return [Task(f"{split}-{n}", {"first": start + n}) for n in range(40)]

    def reset(self, task: Task, seed: int) -> State:
        return State(task.data["first"])

    def acting(self, state: State) -> tuple[str, ...]:
        return self.roles[len(state.said) :][:1]

    def observe(self, state: State, role: str) -> Sequence[Message]:
        before = f" After {state.said[0]!r}." if state.said else ""
        return [user(f"You are the {role}.{before} Count on from {state.first}:")]

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult:
        ((role, reply),) = replies.items()
        share = sum(c.isdigit() for c in reply) / max(1, len(reply))
        shorter = 1 / (1 + len(reply))
        after = replace(state, said=(*state.said, reply))
        return StepResult(after, Rewards(process={role: Scored(share + shorter)}))

    def success(self, state: State, role: str) -> bool:
        return any(c.isdigit() for c in state.said[self.roles.index(role)])

    def solo(self) -> Environment:
        from pettingllms.envs.solo import AllSeats

        return AllSeats(self)
