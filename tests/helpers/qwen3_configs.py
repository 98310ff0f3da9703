"""The config.json of several sizes of Qwen3, without weights."""

import json
from pathlib import Path
from typing import Any

from pettingllms.preflight.absent import QWEN3, qwen3_config

__all__ = ["QWEN3", "qwen3", "write_config"]


def qwen3(name: str, **changed: Any) -> dict[str, Any]:
    """The config.json of a size of Qwen3."""
    return {**qwen3_config(name), **changed}


def write_config(folder: Path, name: str) -> Path:
    """A model folder with nothing but a config.json."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(qwen3(name)))
    return folder
