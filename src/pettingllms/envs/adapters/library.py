"""The base class of all library adapters: options, tasks, errors and seeding."""

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split
from pettingllms.envs.toolkit.answers import as_reply
from pettingllms.errors import LibraryError, PettingError, UnknownNameError, describe, nearest
from pettingllms.types import Task

CRASHED = "the game crashed"
"""Prefix of a reason if the library raised in the middle of a game."""
_SEEDING = threading.RLock()
StateT = TypeVar("StateT")
Parameter = bool | int | float | str


class LibraryConfig(EnvConfig):
    """Options of all library games."""

    num_tasks: int = Field(default=1024, ge=1)
    """Games per split. They differ only in their seeds."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """Parameters passed to the library, such as the board size."""
    illegal_reward: float = -0.5
    """Process reward for an illegal reply."""


class BoardConfig(LibraryConfig):
    """Options of games with a list of legal moves."""

    max_listed: int = Field(default=200, ge=1)
    """Maximum number of legal moves in a prompt. Moves beyond it are still legal."""


ConfigT = TypeVar("ConfigT", bound=LibraryConfig)


class LibraryGame(Environment[StateT, ConfigT]):
    """A game under its library's name. The library's version serves as the game's version."""

    extra: ClassVar[str]
    """The extra of this package that installs the library."""
    late_rewards = True
    limit_reward = -1.0

    def __init__(self, config: ConfigT) -> None:
        super().__init__(config)
        self.id = config.id
        self.name = config.id.partition(":")[2]

    @classmethod
    def create(cls, config: ConfigT) -> Environment[Any, Any]:
        """Create the game; reject games that crash according to the catalogue."""
        from pettingllms.envs.adapters.catalogue import entry_of

        env, entry = super().create(config), entry_of(config.id)
        if entry is None:
            return env
        if (entry.reason or "").startswith(CRASHED) and not config.parameters:
            raise LibraryError(
                f"'{config.id}' cannot be played: {entry.reason}; `pettingllms list envs --all` "
                "lists games that work"
            )
        env.can_fork = entry.forks
        return env

    @classmethod
    def games(cls) -> list[str]:
        """All game names of the library."""
        raise NotImplementedError

    @classmethod
    def families(cls) -> list[list[str]]:
        """All names, grouped by game, with the default variant first."""
        return [[name] for name in cls.games()]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def check_name(self, known: Sequence[str]) -> None:
        """Raise UnknownNameError, with the nearest name, if the library has no such game."""
        if self.name not in known:
            raise UnknownNameError(f"unknown game '{self.id}'; {nearest(self.name, known)}")


def import_library(module: str, extra: str) -> Any:
    """Import a library's module; raise LibraryError with the pip command if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise LibraryError(
            f"{module} cannot be imported ({error}); run: pip install 'pettingllms[{extra}]'"
        ) from error


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn exceptions of a library into a LibraryError that starts with `what`."""
    try:
        yield
    except PettingError:
        raise
    except Exception as error:
        raise LibraryError(f"{what}: {' '.join(describe(error).split())[:200]}") from error


def won(returns: Mapping[str, float], role: str, best: float | None) -> bool:
    """Whether a role has the highest return, unless all returns are equal.

    With equal returns, or a single role, winning means reaching `best`, the maximum return.
    """
    if len(set(returns.values())) > 1:
        return returns[role] == max(returns.values())
    return best is not None and returns[role] >= best


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of `random` and numpy inside, and restore them afterwards.

    Some libraries use global randomness. This makes a call a function of the episode's seed and
    leaves the generators of other code unchanged.
    """
    with _SEEDING:
        kept, kept_numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(kept_numpy)
