"""Reading one TOML file as plain data."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms.config.user_code import named_places
from pettingllms.errors import ConfigError
from pettingllms.registry import absolute


def read_toml(path: Path) -> dict[str, Any]:
    """The plain data of a TOML file, with absolute paths to user classes."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            str(path), [f"cannot be read: {error.strerror}; give a TOML file"]
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), [f"not TOML: {error}; correct it there"]) from None
    make_paths_absolute(data, path.parent)
    return data


def make_paths_absolute(data: Mapping[str, Any], folder: Path) -> None:
    """Make paths to user classes absolute."""
    for section, key, _ in named_places(data):
        section[key] = absolute(section[key], folder)
