"""A small team game whose every counterfactual can be worked out by enumeration."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pettingllms.config import EnvConfig
from pettingllms.envs import Environment, Split, StepResult
from pettingllms.seeds import derive_seed
from pettingllms.types import Episode, Message, Rewards, SampleRequest, Scored, Task, user

WORDS = {"x": 0.5, "y": 0.3, "z": 0.2}
"""What a role may say, and how often it does."""
ROUNDS = (("a", "b"), ("c", "idler"), ("a",))
Pay = Callable[[str, str, str, str], float]


def by_table(a: str, b: str, c: str, encore: str) -> float:
    """A number for every way to sing, with no pattern in it."""
    return derive_seed("choir", a, b, c, encore) % 1000 / 100


def sing(request: SampleRequest, number: int) -> str:
    """A word by the known chances, whatever was heard."""
    rng = random.Random(derive_seed(request.seed, number))
    return rng.choices(list(WORDS), list(WORDS.values()))[0]


def sing_anything(env: Any, state: Any, role: str, rng: random.Random) -> str:
    return rng.choice(list(WORDS))


@dataclass(frozen=True)
class Song:
    """The words of each round, in the order of its roles."""

    heard: tuple[tuple[str, ...], ...] = ()


class Choir(Environment[Song, EnvConfig]):
    """a and b sing together, then c and the idler, then a again. No role hears the idler."""

    id = "choir-v1"
    players = {"random": sing_anything}
    late_rewards = True

    def __init__(self, pay: Pay = by_table, config: EnvConfig | None = None) -> None:
        super().__init__(config)
        self.pay = pay

    @property
    def roles(self) -> tuple[str, ...]:
        return ("a", "b", "c", "idler")

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{at}") for at in range(100)]

    def reset(self, task: Task, seed: int) -> Song:
        return Song()

    def acting(self, state: Song) -> tuple[str, ...]:
        return ROUNDS[len(state.heard)] if len(state.heard) < len(ROUNDS) else ()

    def observe(self, state: Song, role: str) -> Sequence[Message]:
        return [user(f"{role} heard {state.heard}")]

    def step(self, state: Song, replies: Mapping[str, str]) -> StepResult[Song]:
        after = Song((*state.heard, tuple(replies[role] for role in self.acting(state))))
        return StepResult(after, Rewards(team=None if self.acting(after) else self.worth(after)))

    def worth(self, song: Song) -> Scored:
        (a, b), (c, _), (encore,) = song.heard
        return Scored(self.pay(a, b, c, encore))

    def success(self, state: Song, role: str) -> bool:
        return True


LATER = {0: (2, 3, 4), 1: (2, 3, 4), 2: (4,), 3: (4,), 4: ()}
"""For each turn those of later steps: who sings at the same time cannot react."""


def contribution(episode: Episode, at: int, pay: Pay) -> float:
    """The return of the main branch minus its mean over turn `at` and the turns that follow."""
    said = [turn.text for turn in episode.turns[:5]]
    free = [at, *LATER[at]]
    mean = 0.0
    for words in itertools.product(WORDS, repeat=len(free)):
        other = said[:]
        chance = 1.0
        for place, word in zip(free, words, strict=True):
            other[place] = word
            chance *= WORDS[word]
        mean += chance * _return_of(other, pay)
    return _return_of(said, pay) - mean


def _return_of(said: list[str], pay: Pay) -> float:
    a, b, c, _, encore = said
    return pay(a, b, c, encore)


def play_line(env: Environment[Any, Any], episode: Episode, last: int) -> None:
    """Play one line of an episode again, alone: every step must pay what was recorded."""
    state = env.reset(episode.task, episode.seed)
    for at in list(episode.path(last))[::-1]:
        step = episode.steps[at]
        turns = [episode.turns[index] for index in step.turns]
        assert tuple(turn.role for turn in turns) == env.acting(state)
        result = env.step(state, {turn.role: turn.text for turn in turns})
        assert result.rewards == step.rewards
        state = result.state
    assert not env.acting(state)
