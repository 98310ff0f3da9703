"""Games of libraries that play one game forward in one object, and cannot copy it.

A state is the seed and the moves, with what each role may see after them written down at once. The
library's object is handed on along the line of play, from a state to the first one that follows it.
Whoever steps the same state again, or steps a copy that was pickled, plays the moves again in a new
object. So a line costs nothing extra, a fork costs its history, and no state ever changes.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pettingllms.envs.adapters.chance import seeded
from pettingllms.envs.adapters.library import (
    BROKE_OFF,
    LibraryConfig,
    LibraryGame,
    asked_of_library,
    won,
)
from pettingllms.envs.base import StepResult
from pettingllms.envs.toolkit.answers import BadReply, answer_in
from pettingllms.errors import ForkError, LibraryError
from pettingllms.seeds import derive_seed
from pettingllms.types import Failed, Reward, Rewards, Scored, Task

ConfigT = TypeVar("ConfigT", bound=LibraryConfig)


class Baton:
    """The library's object, for the first who takes it."""

    def __init__(self, live: Any = None) -> None:
        self._held = [] if live is None else [live]

    def take(self) -> Any:
        """The object, which nobody gets after this; None if it was taken."""
        try:
            return self._held.pop()
        except IndexError:
            return None

    def give(self, live: Any) -> None:
        """Put the object back, at the position that it was taken at."""
        self._held.append(live)

    def __reduce__(self) -> tuple[Any, ...]:
        return Baton, ()


@dataclass(frozen=True, slots=True)
class View:
    """What there is to know of a position: nothing in it can change."""

    mover: str | None
    """Whose turn it is; None when the game is over."""
    texts: tuple[tuple[str, ...], ...]
    """What each role may see, in the order of the roles."""
    moves: tuple[str, ...] = ()
    """The mover's legal moves by name, if the library knows them."""
    returns: tuple[float | None, ...] = ()
    """What each role was paid so far; None for a role that the library did not pay."""
    refused: str | None = None
    """Why the library did not accept the last move, if so."""


@dataclass(frozen=True, slots=True)
class Line:
    """A seed and all moves since; `baton` may hold the library's object after them."""

    seed: int
    moves: tuple[str, ...]
    view: View
    forfeit: tuple[str, str] | None = None
    """Whose reply ended the game because it could not be read, and why."""
    baton: Baton = field(default_factory=Baton, compare=False, repr=False)


class LineGame(LibraryGame[Line, ConfigT]):
    """A game of which a library holds one object for each play."""

    best: float | None = None
    """The most that a role can be paid, where it is known."""
    least: float = -1.0
    """The least that a role can be paid, which is what a forfeit leaves it with."""
    together: bool = False
    """Whether roles win together: then nobody wins by another's forfeit."""
    gives_up: str | None = None
    """The answer that an unreadable reply counts as, where the game itself prices giving up."""

    @abstractmethod
    def start(self, seed: int) -> Any:
        """The library's object at the start of a game."""

    @abstractmethod
    def play(self, live: Any, move: str, number: int) -> None:
        """Make a move in the object; `number` is its place among those of the view before it."""

    @abstractmethod
    def view(self, live: Any) -> View:
        """What there is to know of the object's position."""

    @abstractmethod
    def read(self, state: Line, answer: str) -> str:
        """The move that an answer means; BadReply if it means none."""

    def reset(self, task: Task, seed: int) -> Line:
        seed = derive_seed(self.extra, task.seed, seed)
        live = self._started(seed)
        return Line(seed, (), self.view(live), baton=Baton(live))

    def acting(self, state: Line) -> tuple[str, ...]:
        over = state.forfeit is not None or state.view.mover is None
        return () if over or state.view.mover is None else (state.view.mover,)

    def step(self, state: Line, replies: Mapping[str, str]) -> StepResult[Line]:
        (mover,) = self.acting(state)
        illegal = False
        try:
            move = self.read(state, answer_in(replies[mover], self.config.terse))
        except BadReply as refusal:
            if self.gives_up is None:
                return self._forfeited(state, mover, str(refusal))
            illegal, move = True, self.read(state, self.gives_up)
        live = self.live(state)
        try:
            with asked_of_library(BROKE_OFF):
                view = self._played(live, state.seed, len(state.moves), move, state.view)
        except LibraryError as error:  # some raise on a number without end
            return self._forfeited(state, mover, str(error))
        after = Line(state.seed, (*state.moves, move), view, baton=Baton(live))
        agent = self._paid(state.view, view)
        illegal = illegal or view.refused is not None
        process = {mover: Scored(self.config.illegal_reward)} if illegal else {}
        return StepResult(after, Rewards(process, agent), {"illegal": float(illegal)})

    def success(self, state: Line, role: str) -> bool:
        if state.forfeit is not None:
            return not self.together and role != state.forfeit[0]
        returns = dict(zip(self.roles, state.view.returns, strict=True))
        paid = {position: value for position, value in returns.items() if value is not None}
        return role in paid and won(paid, role, self.best)

    def live(self, state: Line) -> Any:
        """The library's object at this state, for the caller alone."""
        live = state.baton.take()
        if live is not None:
            return live
        live = self._started(state.seed)
        view = self.view(live)
        for number, move in enumerate(state.moves):
            view = self._played(live, state.seed, number, move, view)
        if view != state.view:
            raise ForkError(
                f"'{self.id}' was played on from this state before, and playing its moves again "
                "leads elsewhere: not all of its chance follows from a seed. Step each state once"
            )
        return live

    def _started(self, seed: int) -> Any:
        with seeded(seed):
            return self.start(seed % 2**31)

    def _played(self, live: Any, seed: int, number: int, move: str, before: View) -> View:
        with seeded(derive_seed("move", seed, number)):
            self.play(live, move, before.moves.index(move) if before.moves else 0)
            return self.view(live)

    def _paid(self, before: View, after: View) -> dict[str, Reward]:
        """What a move added, and at the end something for every role."""
        paid: dict[str, Reward] = {}
        for at, role in enumerate(self.roles):
            had, has = before.returns[at] or 0.0, after.returns[at]
            if has is not None and (has != had or after.mover is None):
                paid[role] = Scored(has - had)
            elif after.mover is None:
                paid[role] = Failed(f"'{self.id}' paid {role} nothing", "environment")
        return paid

    def _forfeited(self, state: Line, role: str, reason: str) -> StepResult[Line]:
        """The end: least for the role, and what it lost shared by its rivals, if it has any."""
        others = self.least if self.together else -self.least / max(1, len(self.roles) - 1)
        returns = {position: self.least if position == role else others for position in self.roles}
        agent: dict[str, Reward] = {
            position: Scored(returns[position] - (had or 0.0))
            for position, had in zip(self.roles, state.view.returns, strict=True)
        }
        lost = Line(state.seed, state.moves, state.view, (role, reason))
        process = {role: Scored(self.config.illegal_reward)}
        return StepResult(lost, Rewards(process, agent), {"illegal": 1.0})
