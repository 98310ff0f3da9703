"""Adapter for PettingZoo's classic games (Terry et al., 2021): `pettingzoo:NAME`.

Other families use images and continuous control, which do not fit text moves. Copies of
PettingZoo objects are new games, because pickling keeps only the constructor arguments. So forks
are replayed from the seed.
"""

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.envs.adapters.library import BoardConfig, import_library, library_errors
from pettingllms.envs.adapters.moves import list_moves, name_moves, plain, read_move
from pettingllms.envs.adapters.pettingzoo_texts import TEXTS
from pettingllms.envs.adapters.replayed import ReplayGame, ReplayState, View
from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER
from pettingllms.types import Message, system, user

STAKES = {"leduc_holdem": 13.0, "texas_holdem": 50.0, "texas_holdem_no_limit": 100.0}
"""Chips that a player can lose per hand."""


class PettingZooConfig(BoardConfig):
    """Options of a PettingZoo classic game."""


class PettingZooGame(ReplayGame[PettingZooConfig]):
    """A PettingZoo classic game. Agents act sequentially, in the library's order."""

    Config = PettingZooConfig
    extra = "pettingzoo"

    def __init__(self, config: PettingZooConfig) -> None:
        super().__init__(config)
        self.check_name(self.games())
        self.players: Mapping[str, ScriptedPlayer] = {"random": play_random}
        self._texts = TEXTS[self.name.rpartition("-v")[0]]
        place = _registry()[f"classic/{self.name}"].entry_point.partition(":")[0]
        self._module = import_library(place, self.extra)
        with library_errors(f"PettingZoo cannot make '{self.id}'"):
            made = self._made()
        self._roles = tuple(made.possible_agents)
        self.min_return = self._texts.min_return * getattr(made, "max_cycles", 1)
        self.max_return = self._texts.max_return(made)
        self.is_cooperative = self._texts.is_cooperative
        self.fallback_answer = self._texts.fallback_answer
        # The last step can lose everything gained before.
        won = -self.min_return if hasattr(made, "max_cycles") else 0.0
        won = (self.max_return or 0.0) if self.is_cooperative else won
        stake = STAKES.get(self.name.rpartition("-v")[0], 0.0)
        self.limit_reward = min(-stake, self.min_return - won)

    @classmethod
    def games(cls) -> list[str]:
        return [name[8:] for name in _registry() if name.startswith("classic/")]

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    def start(self, seed: int) -> Any:
        live = self._made()
        live.reset(seed=seed)
        return Game(live, dict.fromkeys(self._roles, 0.0))

    def play(self, live: Any, move: str, number: int) -> None:
        live.ready()
        action = live.legal()[number]
        live.env.step(action)
        for role in self._roles:
            live.returns[role] += float(live.env.rewards.get(role, 0.0))

    def view(self, live: Any) -> View:
        live.ready()
        env, over = live.env, live.over()
        moves = [] if over else [self._texts.name(env, action) for action in live.legal()]
        return View(
            mover=None if over else str(env.agent_selection),
            texts=tuple((plain(self._texts.see(env, role)),) for role in self._roles),
            moves=tuple(name_moves(moves)),
            returns=tuple(live.returns[role] for role in self._roles),
        )

    def read(self, state: ReplayState, answer: str) -> str:
        return state.view.moves[read_move(answer, state.view.moves)]

    def observe(self, state: ReplayState, role: str) -> Sequence[Message]:
        terse = self.config.terse
        parts = list(state.view.texts[self._roles.index(role)])
        if role in self.acting(state):
            parts.append(list_moves(state.view.moves, self.config.max_listed, terse))
        if terse:
            return [user("\n".join(parts))]
        rules = (
            f"You are {role} in a game of {self._texts.title}. {HOW_TO_ANSWER} The answer is one "
            "legal move, written as it is listed."
        )
        return [system(rules), user("\n\n".join(parts))]

    def silence(self, state: ReplayState, role: str) -> str:
        """The first legal move: passing is not allowed, and an empty reply loses the game."""
        return self.reply_of(state.view.moves[0])

    def hint(self, state: ReplayState, role: str) -> str:
        return ", ".join(state.view.moves)

    def _made(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library warns about its own spaces
            return self._module.raw_env(**self.config.parameters)


class Game:
    """The library's object and the returns so far, which the library does not keep."""

    def __init__(self, env: Any, returns: dict[str, float]) -> None:
        self.env = env
        self.returns = returns

    def ready(self) -> None:
        """Restore the board size, which the library's Go stores in process globals."""
        if hasattr(self.env, "_overwrite_go_global_variables"):
            self.env._overwrite_go_global_variables(self.env._N)  # noqa: SLF001

    def over(self) -> bool:
        """Whether every agent is done."""
        agents = self.env.possible_agents
        return all(self.env.terminations[a] or self.env.truncations[a] for a in agents)

    def legal(self) -> list[int]:
        """Legal actions of the agent to move; all actions if the game has no mask."""
        agent = self.env.agent_selection
        seen = self.env.observe(agent)
        if not isinstance(seen, dict):
            return list(range(int(self.env.action_space(agent).n)))
        return [at for at, allowed in enumerate(seen["action_mask"]) if allowed]


def _registry() -> dict[str, Any]:
    import_library("pettingzoo", PettingZooGame.extra)
    place = "pettingzoo.env_registry.registration"
    registry: dict[str, Any] = import_library(place, PettingZooGame.extra).aec_registry
    return registry


def play_random(env: Any, state: Any, role: str, rng: random.Random) -> str:
    """Any legal move."""
    return str(env.reply_of(rng.choice(state.view.moves)))
