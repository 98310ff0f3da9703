"""PettingZoo's classic games (Terry et al., 2021): `pettingzoo:NAME`, such as `pettingzoo:go-v5`.

Its other families are pictures and continuous controls, which no text move can play. A copy of one
of its objects is a new game (their pickling keeps the constructor's arguments alone), so forks are
played again from the seed.
"""

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.envs.adapters.library import BoardConfig, asked_of_library, import_library
from pettingllms.envs.adapters.lines import Line, LineGame, View
from pettingllms.envs.adapters.moves import list_moves, name_moves, plain, read_move
from pettingllms.envs.adapters.pettingzoo_texts import TEXTS
from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER
from pettingllms.types import Message, system, user

STAKES = {"leduc_holdem": 13.0, "texas_holdem": 50.0, "texas_holdem_no_limit": 100.0}
"""Chips that a player can lose in a hand."""


class PettingZooConfig(BoardConfig):
    """Options of a classic game of PettingZoo."""


class PettingZooGame(LineGame[PettingZooConfig]):
    """A classic game of PettingZoo; agents act in the library's order, one after another."""

    Config = PettingZooConfig
    extra = "pettingzoo"

    def __init__(self, config: PettingZooConfig) -> None:
        super().__init__(config)
        self.check_name(self.games())
        self.players: Mapping[str, ScriptedPlayer] = {"random": play_random}
        self._texts = TEXTS[self.name.rpartition("-v")[0]]
        place = _registry()[f"classic/{self.name}"].entry_point.partition(":")[0]
        self._module = import_library(place, self.extra)
        with asked_of_library(f"PettingZoo cannot make '{self.id}'"):
            made = self._made()
        self._roles = tuple(made.possible_agents)
        self.least = self._texts.least * getattr(made, "max_cycles", 1)
        self.best = self._texts.best(made)
        self.together, self.gives_up = self._texts.together, self._texts.gives_up
        # What was won before the last step can be lost in it.
        won = -self.least if hasattr(made, "max_cycles") else 0.0
        won = (self.best or 0.0) if self.together else won
        stake = STAKES.get(self.name.rpartition("-v")[0], 0.0)
        self.limit_reward = min(-stake, self.least - won)

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
            live.paid[role] += float(live.env.rewards.get(role, 0.0))

    def view(self, live: Any) -> View:
        live.ready()
        env, over = live.env, live.over()
        moves = [] if over else [self._texts.name(env, action) for action in live.legal()]
        return View(
            mover=None if over else str(env.agent_selection),
            texts=tuple((plain(self._texts.see(env, role)),) for role in self._roles),
            moves=tuple(name_moves(moves)),
            returns=tuple(live.paid[role] for role in self._roles),
        )

    def read(self, state: Line, answer: str) -> str:
        return state.view.moves[read_move(answer, state.view.moves)]

    def observe(self, state: Line, role: str) -> Sequence[Message]:
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

    def silence(self, state: Line, role: str) -> str:
        """The first legal move: nobody may pass, and an empty reply loses the game."""
        return self.reply_of(state.view.moves[0])

    def hint(self, state: Line, role: str) -> str:
        return ", ".join(state.view.moves)

    def _made(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the library about its own spaces
            return self._module.raw_env(**self.config.parameters)


class Game:
    """The library's object with what it has paid so far, which it forgets."""

    def __init__(self, env: Any, paid: dict[str, float]) -> None:
        self.env = env
        self.paid = paid

    def ready(self) -> None:
        """Put the size of the board back: the library's Go keeps one for the whole process."""
        if hasattr(self.env, "_overwrite_go_global_variables"):
            self.env._overwrite_go_global_variables(self.env._N)  # noqa: SLF001

    def over(self) -> bool:
        """Whether every agent is done."""
        agents = self.env.possible_agents
        return all(self.env.terminations[a] or self.env.truncations[a] for a in agents)

    def legal(self) -> list[int]:
        """Actions that the agent to move may take; games without a mask allow all of them."""
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
