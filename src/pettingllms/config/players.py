"""Whether an environment has the scripted players that a configuration names."""

from collections.abc import Iterable, Iterator
from typing import Any

from pettingllms.errors import UnknownNameError


def player_problems(env: Any, key: str, names: Iterable[str]) -> Iterator[str]:
    """Why players that stand under a key cannot play. `minimax~0.3` is one wherever `minimax` is,
    so the environment itself is asked."""
    for name in names:
        try:
            env.player(name)
        except UnknownNameError as error:
            yield f"{key}: {error}"
