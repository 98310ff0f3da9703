"""Configs, experiments and their results that ship with the package.

A wheel has them in the folder `shipped`, and a clone beside the sources. The current folder has
precedence, so that a clone's files can be edited.
"""

from pathlib import Path
from typing import Literal

PACKAGE = Path(__file__).parents[1]
IN_CLONE = {"configs": "configs", "experiments": "experiments", "results": "docs/results"}
Kind = Literal["configs", "experiments", "results"]


def shipped(kind: Kind) -> Path:
    """The folder of shipped files of a kind; it may not exist."""
    place = Path(IN_CLONE[kind])
    if place.is_dir():
        return place
    in_wheel = PACKAGE / "shipped" / kind
    return in_wheel if in_wheel.is_dir() else PACKAGE.parents[1] / place


def find_config(path: Path) -> Path:
    """The path, or the shipped config of that name: `configs/NAME.toml`, `NAME`, `recipes/NAME`."""
    if path.exists() or path.is_absolute():
        return path
    return find_shipped(str(path).removeprefix("configs/")) or path


def find_shipped(name: str) -> Path | None:
    """The shipped config of a name, such as `NAME` or `recipes/NAME`; None if there is none."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    found = shipped("configs") / (name if name.endswith(".toml") else f"{name}.toml")
    return found if found.is_file() else None
