"""Types of the files that hold a policy, as learners, engines and checkpoints exchange them."""

import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pettingllms.policies.tensor_shards import Shards, merged

Content = bytes | Path | Shards
"""The content of a file, or where it or its parts are. Files of full models are given by path,
because no process should hold a whole model."""
Files = Mapping[str, Content]
"""The files of one policy, by file name."""
Saved = Mapping[str, Files]
"""The files of several policies, by policy."""


MODEL_FILE = "model.safetensors"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"
CRITIC_FILE = "critic.safetensors"
FOR_LEARNERS = (OPTIMIZER_FILE, CRITIC_FILE)
"""Files that inference engines do not get."""


class TemporaryFiles(dict[str, Path]):
    """The files of a temporary folder, which is deleted with this object or at exit.

    Another process of this machine gets a plain dict of the paths."""

    def __init__(self, folder: Path) -> None:
        super().__init__(files_in(folder))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder, by name."""
    return {path.name: path for path in sorted(folder.iterdir())}


def read_content(content: Content) -> bytes:
    """The content of a file that may be given by its path or in parts."""
    if isinstance(content, Shards):
        return b"".join(merged(content))
    return content.read_bytes() if isinstance(content, Path) else content


def write_content(content: Content, path: Path) -> None:
    """Write a new file. One that is given by its path is linked, or else copied."""
    if not isinstance(content, Path):
        copy_content(content, path)
        return
    try:
        path.hardlink_to(content)
    except OSError:  # on another file system, or on one without links
        shutil.copyfile(content, path)


def copy_content(content: Content, path: Path) -> None:
    """Write a new file with blocks of a few megabytes; parts are merged."""
    if isinstance(content, Path):
        shutil.copyfile(content, path)
        return
    with path.open("wb") as file:
        for block in merged(content) if isinstance(content, Shards) else (content,):
            file.write(block)
