"""Which code a configuration names: classes that do not ship with this package."""

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.registry import ALGORITHMS, ENVIRONMENTS, JUDGES, Registry


def named_places(data: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, Registry]]:
    """Each table of plain data that names a class, the key that does, and the registry that loads
    it."""
    judge = data.get("judge")
    judges = judge.get("judges") if isinstance(judge, dict) else None
    places = [(data.get("env"), "id", ENVIRONMENTS), (data.get("algo"), "type", ALGORITHMS)]
    if isinstance(judges, dict):
        places += [(one, "kind", JUDGES) for one in judges.values()]
    for section, key, registry in places:
        if isinstance(section, dict) and isinstance(section.get(key), str):
            yield section, key, registry


def named_code(data: Mapping[str, Any]) -> list[str]:
    """The names in plain data whose loading would import a module from outside this package."""
    found = [(section[key], registry) for section, key, registry in named_places(data)]
    return [name for name, registry in found if not registry.ships(name)]
