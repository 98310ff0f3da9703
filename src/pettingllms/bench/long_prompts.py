"""An environment with long prompts, all different, for the benchmark of rollout workers."""
# ruff: noqa: ARG002 - the contract of environments

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pettingllms.config import EnvConfig
from pettingllms.envs.base import Environment, Split, StepResult
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Rewards, Scored, Task, user

TEXT = "the game moves one step and the player reads the whole board again while"
WORDS = TEXT.split()


class LongPromptsConfig(EnvConfig):
    """Sizes of the benchmark."""

    num_words: int = 4030
    """Words per prompt, each about one token."""
    num_turns: int = 2
    """Turns per episode."""
    num_tasks: int = 64
    """Tasks of each split."""


@dataclass(frozen=True, slots=True)
class State:
    """The task, and the length of the replies so far."""

    task: str
    lengths: tuple[int, ...] = ()


class LongPrompts(Environment[State, LongPromptsConfig]):
    """One role reads long prompts, and long replies have higher rewards."""

    id = "pettingllms.bench.long_prompts:LongPrompts"
    Config = LongPromptsConfig

    @property
    def roles(self) -> tuple[str, ...]:
        return ("reader",)

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{number}") for number in range(self.config.num_tasks)]

    def reset(self, task: Task, seed: int) -> State:
        return State(task.id)

    def acting(self, state: State) -> tuple[str, ...]:
        return self.roles if len(state.lengths) < self.config.num_turns else ()

    def observe(self, state: State, role: str) -> Sequence[Message]:
        start = derive_seed(state.task, *state.lengths)
        numbers = (start + at for at in range(self.config.num_words))
        return [user(" ".join(WORDS[one % len(WORDS)] for one in numbers) + f" {start}")]

    def step(self, state: State, replies: Mapping[str, str]) -> StepResult[State]:
        length = len(replies["reader"])
        rewards = Rewards(agent={"reader": Scored(min(1.0, length / 100))})
        return StepResult(State(state.task, (*state.lengths, length)), rewards)

    def success(self, state: State, role: str) -> bool:
        return sum(state.lengths) % 2 == 0
