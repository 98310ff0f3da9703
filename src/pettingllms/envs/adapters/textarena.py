"""Adapter for TextArena (Guertler et al., 2025): `textarena:NAME`.

Moves are free text that the game parses, so there is no list of legal moves; the game's prompt
describes the format. The game itself reports and penalizes illegal moves. Observations keep all
messages but only the latest board.

Some games download word lists, query a model over the network, or pass replies to Python's parser.
The adapter rejects them before it imports their code.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import Field

from pettingllms.envs.adapters.library import (
    LibraryConfig,
    import_library,
    library_errors,
    seeded,
)
from pettingllms.envs.adapters.moves import plain
from pettingllms.envs.adapters.replayed import ReplayGame, ReplayState, View
from pettingllms.envs.adapters.textarena_moves import play_random
from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER
from pettingllms.errors import LibraryError
from pettingllms.types import Message, system, user

REFUSED = {
    r"nltk\.download|EnglishDictionary": "needs the network: it downloads word lists",
    r"OpenRouter": "needs the network: it queries a model",
    r"\b(literal_eval|eval|exec)\(": "passes model-generated text to Python's parser",
}
"""Patterns in a game's source code, and the reason to reject a game that matches."""
PLAYER_COUNTS: tuple[int, ...] = (2, 1, *range(3, 16))
"""Numbers of players, in the order in which the adapter tries them."""
VARIANTS = ("-raw", "-train")
"""Suffixes of names that differ only in the library's rendering, which is not used here."""
NO_OP = "..."
"""A no-op answer: harmless as a message, and penalized by the game elsewhere."""


class TextArenaConfig(LibraryConfig):
    """Options of a TextArena game."""

    num_players: int | None = Field(default=None, ge=1, le=15)
    """Number of players. Default: two, or the fewest that the game supports."""


class TextArenaGame(ReplayGame[TextArenaConfig]):
    """A TextArena game. Players act sequentially."""

    Config = TextArenaConfig
    extra = "textarena"
    max_return = 1.0

    def __init__(self, config: TextArenaConfig) -> None:
        super().__init__(config)
        self.check_name(self.games())
        self.players: Mapping[str, ScriptedPlayer] = {"random": play_random}
        spec = _registry()[self.name]
        self._check_source(spec.entry_point.partition(":")[0])
        wrappers = [wrapper.__name__ for wrapper in spec.default_wrappers or ()]
        self._bracketed = "ActionFormattingWrapper" in wrappers
        if config.num_players is not None:
            with library_errors(f"TextArena cannot start '{self.id}'"):
                self._start_with(config.num_players, 0)
        self._num_players = config.num_players or self._find_num_players()
        self._roles = tuple(f"player_{position}" for position in range(self._num_players))
        if type(self.start(0).env.state).__name__ == "TeamMultiPlayerState":
            self.is_cooperative, self.fallback_answer = True, NO_OP

    @classmethod
    def games(cls) -> list[str]:
        return [name for name in _registry() if not name.endswith(VARIANTS)]

    @classmethod
    def families(cls) -> list[list[str]]:
        """All names, grouped by game, with the default variant first."""
        found: dict[str, list[str]] = {}
        for name in cls.games():
            found.setdefault(_registry()[name].entry_point, []).append(name)
        return [
            sorted(names, key=lambda name: not name.endswith("-v0")) for names in found.values()
        ]

    @property
    def roles(self) -> tuple[str, ...]:
        return self._roles

    def start(self, seed: int) -> Any:
        return self._start_with(self._num_players, seed)

    def play(self, live: Any, move: str, number: int) -> None:
        with _quiet():
            live.step(move)

    def view(self, live: Any) -> View:
        return View(
            mover=None if live.env.state.done else f"player_{live.env.state.current_player_id}",
            texts=tuple(live.texts(position) for position in range(self._num_players)),
            returns=tuple(live.return_of(position) for position in range(self._num_players)),
            refused=live.refused,
        )

    def read(self, state: ReplayState, answer: str) -> str:
        bare = self._bracketed and "[" not in answer and "]" not in answer
        return f"[{answer}]" if bare else answer

    def observe(self, state: ReplayState, role: str) -> Sequence[Message]:
        prompt, *said = state.view.texts[self._roles.index(role)]
        seen = "\n\n".join(said) or "The game begins."
        if self.config.terse:
            return [user(f"{prompt}\n\n{seen}")]  # one text has the rules and the role's secrets
        rules = f"{prompt}\n\n{HOW_TO_ANSWER} Between the tags stands what the game is to read."
        return [system(rules), user(seen)]

    def silence(self, state: ReplayState, role: str) -> str:
        return self.reply_of(NO_OP)

    def hint(self, state: ReplayState, role: str) -> str:
        return "a move as the game asks for it; ? shows its prompt"

    def _check_source(self, module: str) -> None:
        with library_errors(f"TextArena cannot find '{self.id}'"):
            spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise LibraryError(f"TextArena lists '{self.id}' but does not ship it")
        source = Path(spec.origin).read_text(encoding="utf-8")
        for pattern, what in REFUSED.items():
            if re.search(pattern, source):
                raise LibraryError(f"'{self.id}' {what}, which runs must not do")

    def _find_num_players(self) -> int:
        """Two players, or the fewest that the game supports; raise the last error if none."""
        for number in PLAYER_COUNTS[:-1]:
            try:
                with library_errors(f"TextArena cannot start '{self.id}'"):
                    self._start_with(number, 0)
            except LibraryError as error:
                if not isinstance(error.__cause__, AssertionError | ValueError | KeyError):
                    raise
            else:
                return number
        with library_errors(f"TextArena cannot start '{self.id}'"):
            self._start_with(PLAYER_COUNTS[-1], 0)
        return PLAYER_COUNTS[-1]

    def _start_with(self, num_players: int, seed: int) -> "Session":
        with _quiet(), seeded(seed):
            env = import_library("textarena", self.extra).make(self.name, **self.config.parameters)
            while hasattr(env, "env"):
                env = env.env
            env.reset(num_players=num_players, seed=seed)
        return Session(env)


class Session:
    """The library's object and all messages so far, which the library hands out once."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.refused: str | None = None
        self._history: dict[int, list[tuple[int, str, Any]]] = {}
        self._collect()

    def step(self, move: str) -> None:
        """Make a move for the player to act, and collect new messages."""
        state = self.env.state
        mover, num_before = state.current_player_id, len(self._messages(state.current_player_id))
        was_out = self._is_out(mover)
        self.env.step(move)
        self._collect()
        self.refused = None
        for _, text, kind in self._messages(mover)[num_before:]:
            if kind.name == "GAME_ADMIN" and "invalid move" in text:
                self.refused = text
        if self._is_out(mover) and not was_out:
            self.refused = self.refused or str(state.game_info[mover].get("reason", "invalid move"))

    def texts(self, position: int) -> tuple[str, ...]:
        """The prompt, then all messages, with only the latest board."""
        messages = self._messages(position)
        prompt = next((text for _, text, kind in messages if kind.name == "PROMPT"), "")
        boards = [at for at, (_, _, kind) in enumerate(messages) if kind.name == "GAME_BOARD"]
        said = [
            f"[{self._name(sender)}] {plain(text)}"
            for at, (sender, text, kind) in enumerate(messages)
            if text is not prompt and (kind.name != "GAME_BOARD" or at == boards[-1])
        ]
        return plain(prompt), *said

    def return_of(self, position: int) -> float | None:
        """The return of a player, which the game sets at its end."""
        state = self.env.state
        if not state.done:
            return 0.0
        given = (state.rewards or {}).get(position)
        return float(given) if isinstance(given, int | float) else None

    def _collect(self) -> None:
        """Collect the observation of the player to act; the library returns it only once."""
        if not self.env.state.done:
            position, messages = self.env.get_observation()
            self._history.setdefault(position, []).extend(messages)

    def _messages(self, position: int) -> list[tuple[int, str, Any]]:
        messages = self._history.get(position, []) + list(self.env.state.observations[position])
        # A few games give sender, text and kind in another order.
        return [m if isinstance(m[0], int) else (m[1], m[2], m[0]) for m in messages]

    def _is_out(self, position: int) -> bool:
        return bool(self.env.state.game_info[position].get("invalid_move"))

    def _name(self, sender: int) -> str:
        names: dict[int, str] = self.env.state.role_mapping
        return names.get(sender, "GAME" if sender < 0 else f"Player {sender}")


def _registry() -> dict[str, Any]:
    import_library("textarena", TextArenaGame.extra)
    registry: dict[str, Any] = import_library(
        "textarena.envs.registration", TextArenaGame.extra
    ).ENV_REGISTRY
    return registry


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the output of games that print."""
    with redirect_stdout(StringIO()):
        yield
