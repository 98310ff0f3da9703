"""Adapter for OpenSpiel (Lanctot et al., 2019): `openspiel:NAME`.

A state holds a state of the library and never changes it: a step works on a clone, so a fork costs
no more than a step. Chance nodes are sampled from the episode's seed and the number of the draw, so
siblings get the same draws. Games with internal randomness are seeded and replayed from the start
in each step, because their clones share one random generator.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pettingllms.envs.adapters.library import (
    BoardConfig,
    LibraryGame,
    Parameter,
    import_library,
    library_errors,
    won,
)
from pettingllms.envs.adapters.moves import list_moves, name_moves, plain, read_move
from pettingllms.envs.base import ScriptedPlayer, StepResult
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER, BadReply, answer_in
from pettingllms.errors import LibraryError
from pettingllms.seeds import derive_seed
from pettingllms.types import Message, Rewards, Scored, Task, system, user

SEED = "rng_seed"
"""The parameter of games with internal randomness."""


class OpenSpielConfig(BoardConfig):
    """Options of an OpenSpiel game."""


@dataclass(frozen=True, slots=True)
class Position:
    """All moves so far, including chance; `live` is the library's state after them."""

    game: str
    seed: int
    history: tuple[int, ...]
    live: Any = field(compare=False, repr=False)
    num_draws: int = 0
    forfeits: tuple[tuple[str, str], ...] = ()
    """Roles whose illegal replies ended the game, and why."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.game, self.seed, self.history, self.num_draws, self.forfeits)


class OpenSpielGame(LibraryGame[Position, OpenSpielConfig]):
    """Any OpenSpiel game except mean field games; simultaneous moves are supported."""

    Config = OpenSpielConfig
    extra = "openspiel"

    def __init__(self, config: OpenSpielConfig) -> None:
        super().__init__(config)
        pyspiel = _pyspiel()
        self.check_name(self.games())
        kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
        kind = kinds[self.name]
        if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
            raise LibraryError(
                f"'{self.id}' is a mean field game: it has a distribution of players, not roles"
            )
        if not kind.default_loadable and not config.parameters:
            needed = ", ".join(kind.parameter_specification)
            raise LibraryError(f"'{self.id}' needs env.parameters, among: {needed}")
        with library_errors(f"OpenSpiel cannot load '{self.id}'"):
            self.game = pyspiel.load_game(self.name, _parameters(kind, config.parameters))
        self.kind = self.game.get_type()
        self.players: Mapping[str, ScriptedPlayer] = {"random": play_random}
        self._roles = tuple(f"player_{position}" for position in range(self.game.num_players()))
        self._has_internal_chance = SEED in self.kind.parameter_specification
        self._shared = self.kind.utility == pyspiel.GameType.Utility.IDENTICAL
        self.limit_level = "team" if self._shared else "agent"
        self._each_step = self.kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        kept = self.game.max_utility() if self._each_step else 0.0  # the last step may lose it all
        self.limit_reward = self.game.min_utility() - kept
        self._open = kind.information != pyspiel.GameType.Information.IMPERFECT_INFORMATION
        self._once = kind.information == pyspiel.GameType.Information.ONE_SHOT

    @classmethod
    def games(cls) -> list[str]:
        return list(_pyspiel().registered_names())

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    def reset(self, task: Task, seed: int) -> Position:
        seed = derive_seed("openspiel", task.seed, seed)
        game = self.game
        if self._has_internal_chance:
            seeded = {**self.config.parameters, SEED: seed % 2**31}
            game = _pyspiel().load_game(self.name, _parameters(self.kind, seeded))
        return _after_chance(Position(str(game), seed, (), game.new_initial_state()))

    def at(self, live: Any) -> Position:
        """The position of a library state, for traversing the game tree."""
        return Position(str(live.get_game()), 0, tuple(live.history()), live)

    def acting(self, state: Position) -> tuple[str, ...]:
        live = state.live
        if state.forfeits or live.is_terminal():
            return ()
        if not live.is_simultaneous_node():
            return (self._roles[live.current_player()],)
        return tuple(r for at, r in enumerate(self._roles) if live.legal_actions(at))

    def moves(self, state: Position, role: str) -> dict[str, int]:
        """The role's legal moves: name in the prompt to action of the library."""
        position = self._roles.index(role)
        legal = state.live.legal_actions(position)
        names = name_moves([state.live.action_to_string(position, move) for move in legal])
        return dict(zip(names, legal, strict=True))

    def observe(self, state: Position, role: str) -> Sequence[Message]:
        seen = self._seen(state.live, self._roles.index(role))
        parts = [seen] if seen.strip() else ["Nothing is to be seen."]
        if role in self.acting(state):
            names = list(self.moves(state, role))
            parts.append(list_moves(names, self.config.max_listed, self.config.terse))
        if self.config.terse:
            return [user("\n".join(parts))]
        return [system(self._rules(role)), user("\n\n".join(parts))]

    def step(self, state: Position, replies: Mapping[str, str]) -> StepResult[Position]:
        chosen: dict[str, int] = {}
        illegal: dict[str, str] = {}
        for role in self.acting(state):
            moves = self.moves(state, role)
            try:
                answer = answer_in(replies[role], self.config.terse)
                chosen[role] = moves[list(moves)[read_move(answer, list(moves))]]
            except BadReply as error:
                illegal[role] = str(error)
        if illegal:
            return self._forfeited(state, illegal)
        after = self._after(state, chosen)
        over = after.live.is_terminal()
        returns = after.live.returns() if over or self._each_step else None
        rewards = Rewards() if returns is None else self._rewards(state, returns)
        return StepResult(after, rewards, {"illegal": 0.0})

    def success(self, state: Position, role: str) -> bool:
        if state.forfeits:
            return not self._shared and role not in dict(state.forfeits)
        returns = dict(zip(self._roles, state.live.returns(), strict=True))
        return won(returns, role, self.game.max_utility())

    def silence(self, state: Position, role: str) -> str:
        """The first legal move: few games allow passing, and an empty reply loses the game."""
        return self.reply_of(next(iter(self.moves(state, role))))

    def hint(self, state: Position, role: str) -> str:
        return ", ".join(self.moves(state, role))

    def _rules(self, role: str) -> str:
        aim = "All players are paid alike." if self._shared else "Each player is paid for itself."
        return (
            f"You are {role} in {self.kind.long_name}, as OpenSpiel plays it, with "
            f"{len(self._roles)} in all. {aim} {HOW_TO_ANSWER} The answer is one legal move, "
            "written as it is listed."
        )

    def _seen(self, live: Any, position: int) -> str:
        """A player's observation: the board, and its information state if that adds anything."""
        if self._once:
            return plain(str(live))
        kind = self.kind
        board = plain(live.observation_string(position)) if kind.provides_observation_string else ""
        if self._open:
            return board or plain(str(live))
        if not kind.provides_information_state_string:
            return board
        known = plain(live.information_state_string(position))
        return known if self.config.terse or board in known else f"{board}\n\nYou know: {known}"

    def _after(self, state: Position, chosen: Mapping[str, int]) -> Position:
        live = (
            _replayed(state.game, state.history)
            if self._has_internal_chance
            else state.live.clone()
        )
        if live.is_simultaneous_node():
            live.apply_actions([chosen.get(role, 0) for role in self._roles])
        else:
            live.apply_action(next(iter(chosen.values())))
        played = tuple(live.history())
        return _after_chance(Position(state.game, state.seed, played, live, state.num_draws))

    def _rewards(self, state: Position, returns: Sequence[float]) -> Rewards:
        """The change of the returns in this step."""
        before = state.live.returns() if self._each_step else [0.0] * len(returns)
        gained = [after - had for after, had in zip(returns, before, strict=True)]
        if self._shared:
            return Rewards(team=Scored(gained[0]))
        return Rewards(
            agent={role: Scored(gain) for role, gain in zip(self._roles, gained, strict=True)}
        )

    def _forfeited(self, state: Position, illegal: Mapping[str, str]) -> StepResult[Position]:
        """End the game: minimum return after an illegal reply; others share a fixed sum."""
        least, others = self.game.min_utility(), len(self._roles) - len(illegal)
        returns = list(state.live.returns()) if self._each_step else [0.0] * len(self._roles)
        if self._shared:
            returns = [least] * len(returns)
        elif others and (fixed := self.game.utility_sum()) is not None:
            returns = [(fixed - least * len(illegal)) / others] * len(returns)
        for role in illegal:
            returns[self._roles.index(role)] = least
        lost = replace(state, forfeits=tuple(illegal.items()))
        outcome = self._rewards(state, returns)
        process = {role: Scored(self.config.illegal_reward) for role in illegal}
        rewards = Rewards(process, outcome.agent, outcome.team)
        return StepResult(lost, rewards, {"illegal": float(len(illegal))})


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(env.reply_of(rng.choice(list(env.moves(state, role)))))


def _pyspiel() -> Any:
    return import_library("pyspiel", OpenSpielGame.extra)


def _parameters(kind: Any, given: Mapping[str, Parameter]) -> dict[str, Any]:
    """Parameters for OpenSpiel: one that is itself a game is written as `kuhn_poker()`."""
    read = _pyspiel().game_parameters_from_string
    return {
        key: read(value) if isinstance(kind.parameter_specification.get(key), dict) else value
        for key, value in given.items()
    }


def _after_chance(state: Position) -> Position:
    """Sample all chance nodes, in place: the caller must own `state.live`."""
    live, num_draws = state.live, state.num_draws
    while not live.is_terminal() and live.is_chance_node():
        rng = random.Random(derive_seed("chance", state.seed, num_draws))
        moves, weights = zip(*live.chance_outcomes(), strict=True)
        live.apply_action(rng.choices(moves, weights)[0])
        num_draws += 1
    return Position(state.game, state.seed, tuple(live.history()), live, num_draws)


def _replayed(game: str, history: Sequence[int]) -> Any:
    live = _pyspiel().load_game(game).new_initial_state()
    at = 0
    while at < len(history):
        if live.is_simultaneous_node():
            after = at + live.num_players()
            live.apply_actions(list(history[at:after]))
        else:
            after = at + 1
            live.apply_action(history[at])
        at = after
    return live


def _restored(
    game: str,
    seed: int,
    history: tuple[int, ...],
    num_draws: int,
    forfeits: tuple[tuple[str, str], ...],
) -> Position:
    return Position(game, seed, history, _replayed(game, history), num_draws, forfeits)
