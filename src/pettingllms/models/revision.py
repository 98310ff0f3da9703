"""The revision of a model folder: recorded when it is fetched, checked when it is used.

A hub name means the owner's latest upload. `NAME@REVISION` pins one commit.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError

RECORD = "pettingllms_source.json"
"""File in a fetched model's folder that names its source and revision."""


def split_revision(name: str) -> tuple[str, str | None]:
    """A model's name and its pinned revision, if any."""
    model, _, revision = name.partition("@")
    return model, revision or None


def write_source(folder: Path, name: str, source: str, revision: str) -> None:
    """Record where a model was fetched from."""
    record = {"name": name, "source": source, "revision": revision}
    (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def revision_of(folder: Path) -> str | None:
    """The recorded revision of a model's folder; the hub's cache names folders by revision."""
    file = folder / RECORD
    if file.is_file():
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["revision"])
        except (ValueError, LookupError, TypeError):
            raise ModelError(f"{file} is damaged; fetch the model again") from None
    return folder.name if folder.parent.name == "snapshots" else None


def check_revision(name: str, folder: Path, revision: str | None) -> None:
    """Reject a folder that does not have the pinned revision."""
    if revision is None:
        return
    found = revision_of(folder)
    if found is None or not found.startswith(revision):
        held = f"holds revision {found}" if found else "has no recorded revision"
        raise ModelError(
            f"model '{name}' is pinned to revision {revision}, but {folder} {held}; remove the "
            f"folder and run `pettingllms models get {name}@{revision}`, or change the pin"
        )


def identity(folder: Path) -> dict[str, Any]:
    """Identify a model without reading its weights: revision, configuration, and the name and size
    of each weight file."""
    config = (folder / "config.json").read_bytes()
    files = sorted(folder.glob("*.safetensors"))
    return {
        "revision": revision_of(folder),
        "config_sha256": hashlib.sha256(config).hexdigest(),
        "weights": {file.name: file.stat().st_size for file in files},
    }
