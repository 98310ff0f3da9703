"""Inheritance between configuration files: `extends` names the file that a file builds on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms.config.toml_files import read_toml
from pettingllms.errors import ConfigError
from pettingllms.runtime.shipped import find_shipped

KEY = "extends"
ONLY_IN_FILES = (
    f"{KEY}: works only at the top of a TOML file, not in overrides, tables or run folders (a run "
    "folder has the merged config); leave it out"
)


def read_config(path: Path) -> dict[str, Any]:
    """The plain data of a TOML file and of the files that it extends: tables are merged, and values
    and lists of the extending file replace those of the extended one."""
    chain: dict[Path, dict[str, Any]] = {}
    at: Path | None = path
    while at is not None:
        if at.resolve() in chain:
            names = " -> ".join(one.name for one in [*chain, at])
            problem = f"{KEY}: {names} is a cycle; remove {KEY} from one of these files"
            raise ConfigError(str(path), [problem])
        chain[at.resolve()] = data = read_toml(at)
        at = _extended(at, data.pop(KEY)) if KEY in data else None
    merged: dict[str, Any] = {}
    for data in reversed(chain.values()):
        merged = _merged(merged, data)
    return merged


def _extended(path: Path, name: Any) -> Path:
    """The file that a file extends: a path relative to it, or else a shipped config."""
    if not isinstance(name, str) or not name:
        problem = f"{KEY}: got {name!r:.60}; expected a TOML file or the name of a shipped config"
        raise ConfigError(str(path), [problem])
    beside, shipped = path.parent / Path(name).expanduser(), find_shipped(name)
    is_itself = beside.resolve() == path.resolve()  # may have the name of what it extends
    if beside.is_file() and not (is_itself and shipped):
        return beside
    if shipped is None:
        problem = (
            f"{KEY}: there is no file {beside} and no shipped config '{name}'; give a path "
            f"relative to {path.name}, or a name from `pettingllms list configs`"
        )
        raise ConfigError(str(path), [problem])
    return shipped


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, however deep; anything else is replaced."""
    both = dict(old)
    for key, value in new.items():
        before = both.get(key)
        is_table = isinstance(value, dict) and isinstance(before, dict)
        both[key] = _merged(before, value) if is_table else value  # type: ignore[arg-type]
    return both
