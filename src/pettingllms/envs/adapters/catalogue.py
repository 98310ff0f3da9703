"""The catalogue of library games: which of them work, found by running an episode of each.

Random players play every game once to its end. `catalogue.json` stores the results, so that games
can be listed, or rejected with a reason, without importing their library. Regenerate it after a
library or an adapter has changed:

    python -m pettingllms.envs.adapters.catalogue [LIBRARY]...
"""

import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pettingllms.envs.adapters.library import CRASHED, LibraryGame, library_errors
from pettingllms.envs.base import StepResult
from pettingllms.errors import LibraryError, PettingError
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed

FILE = Path(__file__).with_name("catalogue.json")
MAX_STEPS = {"openspiel": 2000, "pettingzoo": 2000, "textarena": 210}
"""Step limit per episode. Random players of TextArena search for every move, which is slow."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of one game."""

    name: str
    num_roles: int = 0
    num_steps: int = 0
    """Steps of the episode, which was complete if `reason` is None."""
    reason: str | None = None
    """Why the game did not end by legal moves, if it did not."""
    refused: bool = False
    """Whether the adapter rejects the game or the library cannot run it."""
    forks: bool = True
    """Whether a state can be stepped more than once."""
    variants: tuple[str, ...] = ()
    """Names of the same game with other options, which share this entry."""


@cache
def catalogue() -> dict[str, Entry]:
    """All entries by name, in the order of the libraries."""
    entries = [Entry(**{**line, "variants": tuple(line.get("variants", ()))}) for line in _lines()]
    return {entry.name: entry for entry in entries}


def entry_of(name: str) -> Entry | None:
    """The entry of a game, or of the game that it is a variant of."""
    found = catalogue().get(name)
    return found or next((e for e in catalogue().values() if name in e.variants), None)


def play_family(library: str, names: Sequence[str]) -> Entry:
    """Run an episode of the first name and return its entry."""
    name, *variants = (f"{library}:{game}" for game in names)
    others = tuple(variants)
    adapter: type[LibraryGame[Any, Any]] = ENVIRONMENTS.load(name)
    try:
        env = adapter(adapter.Config(id=name))
        with library_errors(CRASHED):
            return _run_episode(env, MAX_STEPS[library], others)
    except PettingError as error:
        return Entry(name, reason=_plain(str(error), name), refused=True, variants=others)


def play_library(library: str) -> Iterator[Entry]:
    """Play every game of a library."""
    for names in ENVIRONMENTS.load(f"{library}:*").families():
        yield play_family(library, names)


def _run_episode(env: Any, max_steps: int, variants: tuple[str, ...]) -> Entry:
    rng = random.Random(derive_seed("catalogue", env.id))
    before = state = env.reset(env.tasks("train")[0], 0)
    result: StepResult[Any] | None = None
    replies: dict[str, str] = {}
    num_steps, reason = 0, None
    while (roles := env.acting(state)) and reason is None:
        before = state
        replies = {role: env.player("random")(env, state, role, rng) for role in roles}
        result = env.step(state, replies)
        state, num_steps = result.state, num_steps + 1
        if result.metrics["illegal"]:
            reason = f"random players found no legal move at step {num_steps}"
            ending = getattr(state, "forfeit", None) or ("", "")
            if ending[1].startswith(CRASHED):
                raise LibraryError(ending[1])
        elif num_steps == max_steps and env.acting(state):
            reason = f"not over after {max_steps} steps of random play"
    assert result is not None  # noqa: S101 - every game has a first move
    forks = _is_repeatable(env, before, replies, result)
    return Entry(env.id, len(env.roles), num_steps, reason, forks=forks, variants=variants)


def _plain(reason: str, name: str) -> str:
    """A reason without the game's name and without local paths."""
    return re.sub(r"/\S*/site-packages/", "", reason).removeprefix(f"'{name}' ")


def _is_repeatable(
    env: Any, state: Any, replies: dict[str, str], expected: StepResult[Any]
) -> bool:
    """Whether repeating the last step from its state gives the same result."""
    try:
        again: StepResult[Any] = env.step(state, replies)
    except PettingError:
        return False
    return again == expected


def _lines() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return lines


def _make(libraries: Sequence[str]) -> None:
    """Run the games of these libraries again and update the file."""
    kept = {} if not FILE.exists() else {line["name"]: line for line in _lines()}
    lines = []
    for library in MAX_STEPS:
        if library in libraries:
            defaults = asdict(Entry(""))
            for entry in play_library(library):
                values = asdict(entry)
                lines.append({k: v for k, v in values.items() if v != defaults[k]})
        else:
            lines += [line for name, line in kept.items() if name.startswith(f"{library}:")]
    text = ",\n".join(json.dumps(line) for line in lines)
    FILE.write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    _make(sys.argv[1:] or list(MAX_STEPS))
