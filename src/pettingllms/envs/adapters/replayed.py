"""Immutable states for libraries with one mutable game object that cannot be copied.

A state holds the seed, the moves, and a snapshot of what each role may see. The library's object
moves from a state to the first state that follows it. Stepping the same state again, or a pickled
copy, replays the moves in a new object. So a linear episode costs nothing extra, and a fork costs a
replay of its history.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pettingllms.envs.adapters.library import (
    CRASHED,
    LibraryConfig,
    LibraryGame,
    library_errors,
    seeded,
    won,
)
from pettingllms.envs.base import StepResult
from pettingllms.envs.toolkit.answers import BadReply, answer_in
from pettingllms.errors import ForkError, LibraryError
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Rewards, Scored, Task

ConfigT = TypeVar("ConfigT", bound=LibraryConfig)


class LiveObject:
    """Holds the library's object until it is taken once."""

    def __init__(self, live: Any = None) -> None:
        self._held = [] if live is None else [live]

    def take(self) -> Any:
        """Remove and return the object; None if it was already taken."""
        try:
            return self._held.pop()
        except IndexError:
            return None

    def give(self, live: Any) -> None:
        """Put the object back, in the state in which it was taken."""
        self._held.append(live)

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveObject, ()


@dataclass(frozen=True, slots=True)
class View:
    """An immutable snapshot of the library's object."""

    mover: str | None
    """The role to act; None when the game is over."""
    texts: tuple[tuple[str, ...], ...]
    """The observation of each role, in the order of the roles."""
    moves: tuple[str, ...] = ()
    """Names of the legal moves, if the library knows them."""
    returns: tuple[float | None, ...] = ()
    """Return of each role so far; None if the library gave the role no reward."""
    refused: str | None = None
    """Why the library rejected the last move, if it did."""


@dataclass(frozen=True, slots=True)
class ReplayState:
    """A seed and all moves since; `live` may hold the library's object after them."""

    seed: int
    moves: tuple[str, ...]
    view: View
    forfeit: tuple[str, str] | None = None
    """The role whose illegal reply ended the game, and why it was illegal."""
    live: LiveObject = field(default_factory=LiveObject, compare=False, repr=False)


class ReplayGame(LibraryGame[ReplayState, ConfigT]):
    """A game of a library that holds one mutable object per episode."""

    max_return: float | None = None
    """The maximum return of a role, if known."""
    min_return: float = -1.0
    """The minimum return of a role, which is the return of a forfeit."""
    is_cooperative: bool = False
    """Whether roles win together. If so, no role wins by another role's forfeit."""
    fallback_answer: str | None = None
    """The answer that replaces an illegal reply, if the game itself penalizes it."""

    @abstractmethod
    def start(self, seed: int) -> Any:
        """A new object of the library, at the start of a game."""

    @abstractmethod
    def play(self, live: Any, move: str, number: int) -> None:
        """Make a move in the object; `number` is its index in the moves of the view before."""

    @abstractmethod
    def view(self, live: Any) -> View:
        """A snapshot of the object."""

    @abstractmethod
    def read(self, state: ReplayState, answer: str) -> str:
        """Parse an answer as a move; raise BadReply if it is none."""

    def reset(self, task: Task, seed: int) -> ReplayState:
        seed = derive_seed(self.extra, task.seed, seed)
        live = self._start_seeded(seed)
        return ReplayState(seed, (), self.view(live), live=LiveObject(live))

    def acting(self, state: ReplayState) -> tuple[str, ...]:
        over = state.forfeit is not None or state.view.mover is None
        return () if over or state.view.mover is None else (state.view.mover,)

    def step(self, state: ReplayState, replies: Mapping[str, str]) -> StepResult[ReplayState]:
        (mover,) = self.acting(state)
        illegal = False
        try:
            move = self.read(state, answer_in(replies[mover], self.config.terse))
        except BadReply as error:
            if self.fallback_answer is None:
                return self._forfeited(state, mover, str(error))
            illegal, move = True, self.read(state, self.fallback_answer)
        live = self.live(state)
        try:
            with library_errors(CRASHED):
                view = self._play_seeded(live, state.seed, len(state.moves), move, state.view)
        except LibraryError as error:  # some libraries raise on very large numbers
            return self._forfeited(state, mover, str(error))
        after = ReplayState(state.seed, (*state.moves, move), view, live=LiveObject(live))
        agent = self._rewards(state.view, view)
        illegal = illegal or view.refused is not None
        process = {mover: Scored(self.config.illegal_reward)} if illegal else {}
        return StepResult(after, Rewards(process, agent), {"illegal": float(illegal)})

    def success(self, state: ReplayState, role: str) -> bool:
        if state.forfeit is not None:
            return not self.is_cooperative and role != state.forfeit[0]
        returns = dict(zip(self.roles, state.view.returns, strict=True))
        known = {other: value for other, value in returns.items() if value is not None}
        return role in known and won(known, role, self.max_return)

    def live(self, state: ReplayState) -> Any:
        """Take the library's object at this state, or recreate it by a replay."""
        live = state.live.take()
        if live is not None:
            return live
        live = self._start_seeded(state.seed)
        view = self.view(live)
        for number, move in enumerate(state.moves):
            view = self._play_seeded(live, state.seed, number, move, view)
        if view != state.view:
            raise ForkError(
                f"'{self.id}' cannot fork: replaying its moves from the seed gives another state, "
                "so some of its randomness is not seeded; step each state only once"
            )
        return live

    def _start_seeded(self, seed: int) -> Any:
        with seeded(seed):
            return self.start(seed % 2**31)

    def _play_seeded(self, live: Any, seed: int, number: int, move: str, before: View) -> View:
        with seeded(derive_seed("move", seed, number)):
            self.play(live, move, before.moves.index(move) if before.moves else 0)
            return self.view(live)

    def _rewards(self, before: View, after: View) -> dict[str, Reward]:
        """Changes of the returns; at the end a reward for every role."""
        rewards: dict[str, Reward] = {}
        for at, role in enumerate(self.roles):
            had, has = before.returns[at] or 0.0, after.returns[at]
            if has is not None and (has != had or after.mover is None):
                rewards[role] = Scored(has - had)
            elif after.mover is None:
                rewards[role] = Failed(f"'{self.id}' gave {role} no reward", "environment")
        return rewards

    def _forfeited(self, state: ReplayState, role: str, reason: str) -> StepResult[ReplayState]:
        """End the game: minimum return for the role; its opponents share what it lost."""
        others = (
            self.min_return
            if self.is_cooperative
            else -self.min_return / max(1, len(self.roles) - 1)
        )
        returns = {
            position: self.min_return if position == role else others for position in self.roles
        }
        agent: dict[str, Reward] = {
            position: Scored(returns[position] - (had or 0.0))
            for position, had in zip(self.roles, state.view.returns, strict=True)
        }
        lost = ReplayState(state.seed, state.moves, state.view, (role, reason))
        process = {role: Scored(self.config.illegal_reward)}
        return StepResult(lost, Rewards(process, agent), {"illegal": 1.0})
