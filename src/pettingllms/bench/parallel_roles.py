"""An environment for `bench adapters`: roles that each write a story, independently of each other.

A batch has the same prompts and about the same tokens for any mapping of roles to policies.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pettingllms.config import EnvConfig
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.types import Message, Rewards, Scored, Task, user

SUBJECTS = ("a river", "a clock", "a violin", "a desert", "a lighthouse", "a bakery", "a comet")
NUM_TASKS = 64


@dataclass(frozen=True, slots=True)
class Stories:
    """The task, and whether its stories are written."""

    task: str
    is_over: bool = False


class ParallelRolesConfig(EnvConfig):
    """Options of the environment."""

    num_roles: int = 8
    """Roles that act at the same time."""


class ParallelRoles(Environment[Stories, ParallelRolesConfig]):
    """All roles reply once, each to a different prompt. Rewards differ by reply."""

    id = "pettingllms.bench.parallel_roles:ParallelRoles"
    Config = ParallelRolesConfig

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(f"role{at}" for at in range(self.config.num_roles))

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{at}", {}) for at in range(NUM_TASKS)]

    def reset(self, task: Task, seed: int) -> Stories:  # noqa: ARG002 - as in the base class
        return Stories(task.id)

    def acting(self, state: Stories) -> tuple[str, ...]:
        return () if state.is_over else self.roles

    def observe(self, state: Stories, role: str) -> Sequence[Message]:
        subject = SUBJECTS[self.roles.index(role) % len(SUBJECTS)]
        return [
            user(
                f"You are {role} in round {state.task}. Write a long story about {subject}. "
                "Describe the place, the people and their plans in many sentences."
            )
        ]

    def step(self, state: Stories, replies: Mapping[str, str]) -> StepResult[Stories]:
        rewards = {
            role: Scored(zlib.crc32(reply.encode()) / 2**32) for role, reply in replies.items()
        }
        return StepResult(Stories(state.task, is_over=True), Rewards(agent=dict(rewards)))

    def success(self, state: Stories, role: str) -> bool:  # noqa: ARG002 - as in the base class
        return state.is_over
