"""Names of classes in a configuration that do not ship with this package."""

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.errors import UnknownNameError
from pettingllms.registry import (
    ALGORITHMS,
    CALLBACKS,
    ENGINES,
    ENVIRONMENTS,
    JUDGES,
    LOSSES,
    TRACKERS,
    Registry,
)

LISTS = {"trackers": TRACKERS, "callbacks": CALLBACKS}
"""Keys of [log] whose lists name classes."""


def named_places(data: Mapping[str, Any]) -> Iterator[tuple[Any, Any, Registry]]:
    """Each place in plain data that names a class: its table or list, its key or index, and the
    registry that loads the class."""
    judge = data.get("judge")
    judges = judge.get("judges") if isinstance(judge, dict) else None
    places = [
        (data.get("env"), "id", ENVIRONMENTS),
        (data.get("algo"), "type", ALGORITHMS),
        (data.get("loss"), "type", LOSSES),
        (data.get("inference"), "engine", ENGINES),
    ]
    if isinstance(judges, dict):
        places += [(one, "kind", JUDGES) for one in judges.values()]
    for section, key, registry in places:
        if isinstance(section, dict) and isinstance(section.get(key), str):
            yield section, key, registry
    log = data.get("log")
    for key, registry in LISTS.items():
        names = log.get(key) if isinstance(log, dict) else None
        for at, name in enumerate(names if isinstance(names, list) else ()):
            if isinstance(name, str):
                yield names, at, registry


def named_code(data: Mapping[str, Any]) -> list[str]:
    """The names in plain data whose loading would import a module from outside this package."""
    found = [(section[key], registry) for section, key, registry in named_places(data)]
    return [name for name, registry in found if not registry.ships(name)]


def log_problems(log: Any) -> Iterator[str]:
    """Trackers and callbacks that cannot be loaded."""
    for key, registry in LISTS.items():
        for name in getattr(log, key, ()):
            try:
                registry.load(name)
            except UnknownNameError as error:
                yield f"log.{key}: {error}"
