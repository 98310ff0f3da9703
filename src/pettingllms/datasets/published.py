"""The published data sets by name; `published.toml` is the table."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from pettingllms.errors import DataError, nearest

ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "problems": ("math-v1", "debate-v1"),
    "code": ("code-v1",),
    "short_answers": ("search-v1",),
    "sql": ("sql-v1",),
    "levels": ("sokoban-v1",),
}
"""Environments that read a kind of data."""
SHARED = "shared"
"""Files that belong to every split, such as databases."""
Files = Mapping[str, tuple[str, ...]]
"""Patterns of file names, by split."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """One data set: where it is, and how it is read."""

    name: str
    title: str
    kind: str
    license: str
    rows: Mapping[str, int]
    """Published number of rows, by split."""
    files: Files
    format: str = ""
    """How a row becomes a problem; a key of `catalog.LOADERS`."""
    repo: str = ""
    """Dataset on the hub; empty if it is an archive elsewhere."""
    archive: str = ""
    """Address of a ZIP file, if the data is not on the hub."""
    revision: str = ""
    """Commit to download; empty: the newest."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field that a loader expects, to field of the data."""
    dates: str = ""
    """Field with the day of a problem."""
    parts: Mapping[str, Files] = field(default_factory=dict)

    @property
    def environments(self) -> tuple[str, ...]:
        """Environments that read it."""
        return ENVIRONMENTS[self.kind]

    def is_test_only(self, part: str = "") -> bool:
        """Whether nothing of it may be trained on."""
        return "train" not in self.files_of(part)

    def files_of(self, part: str = "") -> Files:
        """The patterns of a part, or of the whole set."""
        if part and part not in self.parts:
            known = nearest(part, self.parts) if self.parts else "it has no parts"
            raise DataError(
                f"'{self.name}/{part}': '{self.name}' has no part '{part}'; {known}; for a file, "
                f"write ./{self.name}/{part}"
            )
        return self.parts[part] if part else self.files


@cache
def published() -> Mapping[str, PublishedSet]:
    """All published data sets, by name."""
    text = files("pettingllms.datasets").joinpath("published.toml").read_text(encoding="utf-8")
    return {name: _entry(name, found) for name, found in tomllib.loads(text).items()}


def _entry(name: str, found: Mapping[str, Any]) -> PublishedSet:
    parts = {part: _files(patterns) for part, patterns in found.get("parts", {}).items()}
    return PublishedSet(name, **{**found, "files": _files(found["files"]), "parts": parts})


def _files(found: Mapping[str, list[str]]) -> Files:
    return {split: tuple(patterns) for split, patterns in found.items()}
