"""One environment file for all levels: roles in a row, with rewards for digits and for brevity.

Every reply of a real model gets a reward that differs a little from the next one's, so a step of
training always has something to learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pettingllms import EnvConfig, Environment, Message, Rewards, Scored, StepResult, Task, user
from pettingllms.envs.solo import SoloAllRoles
from pettingllms.types import TEAM, Submission


class DigitsConfig(EnvConfig):
    num_roles: int = 2
    """Number of roles in the row."""
    num_train: int = 40
    """Tasks to train on."""


@dataclass(frozen=True)
class State:
    first: int
    said: tuple[str, ...] = ()


class Digits(Environment):
    """Each role counts on from where the last one was."""

    id = "digits-v1"
    Config = DigitsConfig
    players = {"random": lambda env, state, role, rng: f"{role} says {rng.randrange(10)}"}

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(f"role{n}" for n in range(self.config.num_roles))

    def tasks(self, split: str) -> Sequence[Task]:
        start, count = (0, self.config.num_train) if split == "train" else (1000, 16)
        return [Task(f"{split}-{n}", {"first": start + n}) for n in range(count)]

    def reset(self, task: Task, seed: int) -> State:
        return State(task.data["first"])

    def acting(self, state: State) -> tuple[str, ...]:
        return self.roles[len(state.said) :][:1]

    def observe(self, state: State, role: str) -> Sequence[Message]:
        before = f" It was said: {state.said[-1][:40]!r}." if state.said else ""
        return [user(f"You are {role}.{before} Count on from {state.first}:")]

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult:
        ((role, reply),) = replies.items()
        share = sum(c.isdigit() for c in reply) / max(1, len(reply))
        shorter = 0.1 / (1 + len(reply))
        after = replace(state, said=(*state.said, reply))
        return StepResult(after, Rewards(process={role: Scored(share + shorter)}))

    def success(self, state: State, role: str) -> bool:
        return any(c.isdigit() for c in state.said[self.roles.index(role)])

    def solo(self) -> Environment:
        return SoloAllRoles(self)


class JudgedDigits(Digits):
    """The same, but only a judge gives rewards, after all roles have spoken."""

    id = "judged_digits-v1"
    submits = True

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult:
        after = super().step(state, replies).state
        if self.acting(after):
            return StepResult(after, Rewards())
        shown = Submission(
            f"Count on from {state.first}.", "\n".join(after.said), "Look for digits."
        )
        return StepResult(after, Rewards(), submissions={TEAM: shown})

    def rule(self, submission: Submission, part: str = "") -> Scored:
        return Scored(sum(c.isdigit() for c in submission.answer) / max(1, len(submission.answer)))
