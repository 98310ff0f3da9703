"""Weights of a checkpoint as files for inference engines."""

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from pettingllms.policies.files import (
    FOR_LEARNERS,
    MODEL_FILE,
    Files,
    TemporaryFiles,
    files_in,
    read_content,
    write_content,
)


async def engine_files(files: Files, remote: bool) -> tuple[dict[str, Any], str]:
    """The files of a policy that engines load, and a hash of their content.

    Engines of this machine get the path of a full model, which no process holds. Those that may be
    on other machines (`remote`) get its content."""
    return await asyncio.to_thread(_engine_files, files, remote)


def _engine_files(files: Files, remote: bool) -> tuple[dict[str, Any], str]:
    own = {name: content for name, content in files.items() if name not in FOR_LEARNERS}
    digest = hashlib.sha256()
    found: dict[str, Any] = {}
    if not remote and not isinstance(own.get(MODEL_FILE, b""), bytes):
        found = _temporary(own)
    for name, content in own.items():
        if name in found:
            with Path(found[name]).open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
        else:
            found[name] = read_content(content)
            digest.update(found[name])
    return found, digest.hexdigest()


def _temporary(files: Files) -> TemporaryFiles:
    """The file of a full model in a temporary folder, linked or merged: the checkpoint may be
    deleted before an engine restarts."""
    folder = Path(tempfile.mkdtemp(prefix="pettingllms-weights-"))
    found = TemporaryFiles(folder)  # deletes the folder also if writing fails
    write_content(files[MODEL_FILE], folder / MODEL_FILE)
    found.update(files_in(folder))
    return found
