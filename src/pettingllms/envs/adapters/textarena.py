"""TextArena's games (Guertler et al., 2025): `textarena:NAME`, such as `textarena:TicTacToe-v0`.

Moves are free text, which the game itself reads, so there are none to list: its own prompt says how
they are written. What it does not accept it says, and prices, itself. Older drawings of the board
are left out of what a role is shown; everything that was said stays.

Some of the games fetch word lists, or ask a model over the network to judge, or hand replies to
Python's parser. A run must not do any of it, so they are refused before their code is imported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import Field

from pettingllms.envs.adapters.library import LibraryConfig, asked_of_library, import_library
from pettingllms.envs.adapters.lines import Line, LineGame, View
from pettingllms.envs.adapters.moves import plain
from pettingllms.envs.adapters.textarena_moves import play_random
from pettingllms.envs.base import ScriptedPlayer
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER
from pettingllms.errors import LibraryError
from pettingllms.types import Message, system, user

REFUSED = {
    r"nltk\.download|EnglishDictionary": "needs the network: it downloads word lists",
    r"OpenRouter": "needs the network: it asks a model there",
    r"\b(literal_eval|eval|exec)\(": "hands what a player wrote to Python's own parser",
}
"""What is looked for in the text of a game, and what is said of a game that has it."""
ROLES: tuple[int, ...] = (2, 1, *range(3, 16))
"""Numbers of players, in the order in which a game is asked whether it can be played by so many."""
VARIANTS = ("-raw", "-train")
"""Endings of names that differ only in how the library shows a game; this adapter shows its own."""
NOTHING = "..."
"""An answer that means nothing: it is harmless in talk, and elsewhere the game prices it."""


class TextArenaConfig(LibraryConfig):
    """Options of a game of TextArena."""

    num_players: int | None = Field(default=None, ge=1, le=15)
    """Seats. Left out: two, or else the fewest that the game can be played by."""


class TextArenaGame(LineGame[TextArenaConfig]):
    """A game of TextArena, in which one player speaks at a time."""

    Config = TextArenaConfig
    extra = "textarena"
    best = 1.0

    def __init__(self, config: TextArenaConfig) -> None:
        super().__init__(config)
        self.check_name(self.games())
        self.players: Mapping[str, ScriptedPlayer] = {"random": play_random}
        spec = _registry()[self.name]
        self._refuse_unsafe(spec.entry_point.partition(":")[0])
        wrappers = [wrapper.__name__ for wrapper in spec.default_wrappers or ()]
        self._bracketed = "ActionFormattingWrapper" in wrappers
        if config.num_players is not None:
            with asked_of_library(f"TextArena cannot start '{self.id}'"):
                self._started_with(config.num_players, 0)
        self._num_players = config.num_players or self._fewest()
        self._roles = tuple(f"player_{position}" for position in range(self._num_players))
        if type(self.start(0).env.state).__name__ == "TeamMultiPlayerState":
            self.together, self.gives_up = True, NOTHING

    @classmethod
    def games(cls) -> list[str]:
        return [name for name in _registry() if not name.endswith(VARIANTS)]

    @classmethod
    def families(cls) -> list[list[str]]:
        """The same names, those of one game with other options together, the plainest first."""
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
        return self._started_with(self._num_players, seed)

    def play(self, live: Any, move: str, number: int) -> None:
        with _quiet():
            live.step(move)

    def view(self, live: Any) -> View:
        return View(
            mover=None if live.env.state.done else f"player_{live.env.state.current_player_id}",
            texts=tuple(live.texts(position) for position in range(self._num_players)),
            returns=tuple(live.paid(position) for position in range(self._num_players)),
            refused=live.refused,
        )

    def read(self, state: Line, answer: str) -> str:
        bare = self._bracketed and "[" not in answer and "]" not in answer
        return f"[{answer}]" if bare else answer

    def observe(self, state: Line, role: str) -> Sequence[Message]:
        prompt, *said = state.view.texts[self._roles.index(role)]
        seen = "\n\n".join(said) or "The game begins."
        if self.config.terse:
            return [user(f"{prompt}\n\n{seen}")]  # its rules and a role's secrets are one text
        rules = f"{prompt}\n\n{HOW_TO_ANSWER} Between the tags stands what the game is to read."
        return [system(rules), user(seen)]

    def silence(self, state: Line, role: str) -> str:
        return self.reply_of(NOTHING)

    def hint(self, state: Line, role: str) -> str:
        return "a move as the game asks for it; ? shows its prompt"

    def _refuse_unsafe(self, module: str) -> None:
        with asked_of_library(f"TextArena cannot find '{self.id}'"):
            spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise LibraryError(f"TextArena names '{self.id}' and does not ship it")
        source = Path(spec.origin).read_text(encoding="utf-8")
        for pattern, what in REFUSED.items():
            if re.search(pattern, source):
                raise LibraryError(f"'{self.id}' {what}, which no run may do")

    def _fewest(self) -> int:
        """Two players, or the fewest that the game starts with; the last refusal if none."""
        for number in ROLES[:-1]:
            try:
                with asked_of_library(f"TextArena cannot start '{self.id}'"):
                    self._started_with(number, 0)
            except LibraryError as error:
                if not isinstance(error.__cause__, AssertionError | ValueError | KeyError):
                    raise
            else:
                return number
        with asked_of_library(f"TextArena cannot start '{self.id}'"):
            self._started_with(ROLES[-1], 0)
        return ROLES[-1]

    def _started_with(self, num_players: int, seed: int) -> "Table":
        from pettingllms.envs.adapters.chance import seeded

        with _quiet(), seeded(seed):
            env = import_library("textarena", self.extra).make(self.name, **self.config.parameters)
            while hasattr(env, "env"):
                env = env.env
            env.reset(num_players=num_players, seed=seed)
        return Table(env)


class Table:
    """The library's object, with what each player was told so far, which it hands out once."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.refused: str | None = None
        self._told: dict[int, list[tuple[int, str, Any]]] = {}
        self._listen()

    def step(self, move: str) -> None:
        """Let the player whose turn it is say this, and hear what follows."""
        state = self.env.state
        mover, heard = state.current_player_id, len(self._messages(state.current_player_id))
        lost = self._is_out(mover)
        self.env.step(move)
        self._listen()
        self.refused = None
        for _, text, kind in self._messages(mover)[heard:]:
            if kind.name == "GAME_ADMIN" and "invalid move" in text:
                self.refused = text
        if self._is_out(mover) and not lost:
            self.refused = self.refused or str(state.game_info[mover].get("reason", "invalid move"))

    def texts(self, position: int) -> tuple[str, ...]:
        """The prompt, and then what was said, with the last drawing of the board alone."""
        messages = self._messages(position)
        prompt = next((text for _, text, kind in messages if kind.name == "PROMPT"), "")
        boards = [at for at, (_, _, kind) in enumerate(messages) if kind.name == "GAME_BOARD"]
        said = [
            f"[{self._name(sender)}] {plain(text)}"
            for at, (sender, text, kind) in enumerate(messages)
            if text is not prompt and (kind.name != "GAME_BOARD" or at == boards[-1])
        ]
        return plain(prompt), *said

    def paid(self, position: int) -> float | None:
        """What the game paid the seat, which it does at its end."""
        state = self.env.state
        if not state.done:
            return 0.0
        given = (state.rewards or {}).get(position)
        return float(given) if isinstance(given, int | float) else None

    def _listen(self) -> None:
        """Hear what the player to move is told; the library says it once."""
        if not self.env.state.done:
            position, told = self.env.get_observation()
            self._told.setdefault(position, []).extend(told)

    def _messages(self, position: int) -> list[tuple[int, str, Any]]:
        told = self._told.get(position, []) + list(self.env.state.observations[position])
        # A few games give sender, text and kind in another order than they are kept in.
        return [m if isinstance(m[0], int) else (m[1], m[2], m[0]) for m in told]

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
    """Some of the games print."""
    with redirect_stdout(StringIO()):
        yield
