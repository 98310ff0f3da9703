"""What the adapters of all libraries have in common: tasks, options, refusals with a reason."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from pettingllms.config import EnvConfig
from pettingllms.datasets.seeded import SeededTasks
from pettingllms.envs.base import Environment, Split
from pettingllms.envs.toolkit.answers import as_reply
from pettingllms.errors import LibraryError, PettingError, UnknownNameError, describe, nearest
from pettingllms.types import Task

BROKE_OFF = "the game broke off"
"""How a reason begins where a library raised in the middle of a game."""
StateT = TypeVar("StateT")
Parameter = bool | int | float | str


class LibraryConfig(EnvConfig):
    """Options of every game of a library."""

    num_tasks: int = Field(default=1024, ge=1)
    """Games in a split. They differ only in their seeds."""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    """What the library itself is told about the game, such as the size of its board."""
    illegal_reward: float = -0.5
    """Process reward of a reply that is not a legal move."""


class BoardConfig(LibraryConfig):
    """Options of games whose legal moves can be listed."""

    max_listed: int = Field(default=200, ge=1)
    """Legal moves that a prompt lists. The others may be played as well."""


ConfigT = TypeVar("ConfigT", bound=LibraryConfig)


class LibraryGame(Environment[StateT, ConfigT]):
    """A game by the name that its library gives it. The library's version stands for the game's."""

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
        """The game, unless it is known from the catalogue to break off when it is played."""
        from pettingllms.envs.adapters.catalogue import entry_of

        env, entry = super().create(config), entry_of(config.id)
        if entry is None:
            return env
        if (entry.reason or "").startswith(BROKE_OFF) and not config.parameters:
            raise LibraryError(
                f"'{config.id}' cannot be played: {entry.reason} `pettingllms envs --all` lists "
                "the games that can"
            )
        env.can_fork = entry.forks
        return env

    @classmethod
    def games(cls) -> list[str]:
        """Every name that the library knows."""
        raise NotImplementedError

    @classmethod
    def families(cls) -> list[list[str]]:
        """The same names, those of one game with other options together, the plainest first."""
        return [[name] for name in cls.games()]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)

    def tasks(self, split: Split) -> Sequence[Task]:
        return SeededTasks(split, self.config.num_tasks)

    def reply_of(self, typed: str) -> str:
        return as_reply(typed, self.config.terse)

    def check_name(self, known: Sequence[str]) -> None:
        """UnknownNameError, with the nearest right name, if the library has no such game."""
        if self.name not in known:
            raise UnknownNameError(f"there is no '{self.id}'; {nearest(self.name, known)}")


def import_library(module: str, extra: str) -> Any:
    """A library's module; LibraryError with what to install if it is not there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise LibraryError(
            f"{module} cannot be imported ({error}); run: pip install 'pettingllms[{extra}]'"
        ) from error


@contextmanager
def asked_of_library(what: str) -> Iterator[None]:
    """Whatever a library raises inside, even at its import, is a LibraryError that says of what."""
    try:
        yield
    except PettingError:
        raise
    except Exception as error:
        raise LibraryError(f"{what}: {' '.join(describe(error).split())[:200]}") from error


def won(returns: Mapping[str, float], role: str, best: float | None) -> bool:
    """Whether a role reached its aim: more than some other and less than none.

    Where all are paid alike, or there is one role, it is the most that the game can pay.
    """
    if len(set(returns.values())) > 1:
        return returns[role] == max(returns.values())
    return best is not None and returns[role] >= best
