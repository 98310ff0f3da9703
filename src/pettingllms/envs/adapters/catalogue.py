"""Which games of the libraries can be played, found by playing them.

Random players play every game once, to its end, in text. What came of it is kept in
`catalogue.json`, so that a game can be refused with the reason, and listed, without its library.
Made again, after a library or an adapter has changed, by

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

from pettingllms.envs.adapters.library import BROKE_OFF, LibraryGame, asked_of_library
from pettingllms.envs.base import StepResult
from pettingllms.errors import LibraryError, PettingError
from pettingllms.registry import ENVIRONMENTS
from pettingllms.seeds import derive_seed

FILE = Path(__file__).with_name("catalogue.json")
MAX_STEPS = {"openspiel": 2000, "pettingzoo": 2000, "textarena": 210}
"""Where a play is given up. Random players of TextArena look for every move, which takes longer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What came of a game."""

    name: str
    num_roles: int = 0
    num_steps: int = 0
    """Steps that the play had, to its end if there is no reason."""
    reason: str | None = None
    """Why the game did not come to an end by legal moves, if so."""
    refused: bool = False
    """The adapter will not play it, or the library could not."""
    forks: bool = True
    """A state that was played on from once can be played on from again."""
    variants: tuple[str, ...] = ()
    """Names of the same game with other options, which share all of this."""


@cache
def catalogue() -> dict[str, Entry]:
    """Every entry by its name, in the order of the libraries."""
    entries = [Entry(**{**line, "variants": tuple(line.get("variants", ()))}) for line in _lines()]
    return {entry.name: entry for entry in entries}


def entry_of(name: str) -> Entry | None:
    """What came of the game of that name, or of the game that it is a variant of."""
    found = catalogue().get(name)
    return found or next((e for e in catalogue().values() if name in e.variants), None)


def play_family(library: str, names: Sequence[str]) -> Entry:
    """Play the first of the names to its end and say what came of it."""
    name, *variants = (f"{library}:{game}" for game in names)
    others = tuple(variants)
    adapter: type[LibraryGame[Any, Any]] = ENVIRONMENTS.load(name)
    try:
        env = adapter(adapter.Config(id=name))
        with asked_of_library(BROKE_OFF):
            return _played(env, MAX_STEPS[library], others)
    except PettingError as error:
        return Entry(name, reason=_plain(str(error), name), refused=True, variants=others)


def play_library(library: str) -> Iterator[Entry]:
    """Play every game of a library."""
    for names in ENVIRONMENTS.load(f"{library}:*").families():
        yield play_family(library, names)


def _played(env: Any, max_steps: int, variants: tuple[str, ...]) -> Entry:
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
            if ending[1].startswith(BROKE_OFF):
                raise LibraryError(ending[1])
        elif num_steps == max_steps and env.acting(state):
            reason = f"not over after {max_steps} steps of random play"
    assert result is not None  # noqa: S101 - nobody acts in no game
    forks = _plays_again(env, before, replies, result)
    return Entry(env.id, len(env.roles), num_steps, reason, forks=forks, variants=variants)


def _plain(reason: str, name: str) -> str:
    """A reason without the name that it is listed under, and without this machine's folders."""
    return re.sub(r"/\S*/site-packages/", "", reason).removeprefix(f"'{name}' ")


def _plays_again(env: Any, state: Any, replies: dict[str, str], expected: StepResult[Any]) -> bool:
    """Whether the last step, made once more from its state, gives the same."""
    try:
        again: StepResult[Any] = env.step(state, replies)
    except PettingError:
        return False
    return again == expected


def _lines() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return lines


def _make(libraries: Sequence[str]) -> None:
    """Play the libraries again and write the file; the others stay as they are in it."""
    kept = {} if not FILE.exists() else {line["name"]: line for line in _lines()}
    lines = []
    for library in ENVIRONMENTS.libraries:
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
    _make(sys.argv[1:] or list(ENVIRONMENTS.libraries))
