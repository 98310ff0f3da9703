"""A second place for finished checkpoints: any folder or URL that fsspec opens.

A checkpoint is copied file by file with blocks of a few megabytes, and its manifest last, so one
with a manifest is complete. Each file is hashed as it is read and compared with the manifest.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pettingllms.errors import CheckpointError, ConfigError, describe
from pettingllms.policies.tensor_shards import MAX_BYTES
from pettingllms.runs.checkpoint import (
    MANIFEST,
    NAME,
    POLICIES,
    checkpoints,
    open_checkpoint,
    outdated,
    read_manifest,
    unfinished,
)

KEY = "train.checkpoint_folder"


class RemoteFolder:
    """The checkpoints of one run in a folder or URL."""

    def __init__(self, url: str) -> None:
        """CheckpointError if fsspec, or what it needs for this kind of URL, is not installed."""
        self._url = url
        self._fs, self._root = _opened(url)
        self._incomplete: set[str] = set()
        """Names of checkpoints that this run began to copy and did not complete."""

    def copy(self, folder: Path, keep: int, keep_every: int, good: int) -> str:
        """Copy a finished checkpoint, then delete later ones, which the run went back from, and old
        ones as the run folder does. Why that failed, or empty."""
        try:
            self._copy(folder)
            later = [name for name in self.names() if name > folder.name]
            for name in [*later, *self._incomplete]:
                self._delete(name)
            for old in outdated(self.names(), keep, keep_every, good):
                self._delete(old)
        except Exception as error:  # noqa: BLE001 - file systems raise various exceptions
            return (
                f"{folder} was not copied to {self._url} ({describe(error)}); the next checkpoint "
                f"is tried again; check {KEY}"
            )
        return ""

    def names(self) -> list[str]:
        """The names of complete checkpoints, newest first."""
        self._fs.invalidate_cache()
        found = self._fs.glob(f"{self._root}/step-*/{MANIFEST}")
        names = (str(path).split("/")[-2] for path in found)
        return sorted((name for name in names if NAME.fullmatch(name)), reverse=True)

    def fetch(self, root: Path, notify: Callable[[str], None]) -> bool:
        """Copy the newest checkpoint whose files match their hashes to the folder of a run's
        checkpoints; False if there is none."""
        for name in self.names():
            work = unfinished(root, name)
            try:
                self._get(name, work)
                open_checkpoint(work)
            except CheckpointError as error:
                notify(f"skipped a checkpoint of {self._url}: {error}")
                shutil.rmtree(work, ignore_errors=True)
                continue
            work.rename(root / name)
            notify(f"fetched {name} from {self._url}")
            return True
        return False

    def _copy(self, folder: Path) -> None:
        place = f"{self._root}/{folder.name}"
        if self._exists(place):  # of the same step, which the run went back from
            self._withdraw(folder.name)
        else:
            self._incomplete.add(folder.name)
        for name, expected in read_manifest(folder)[1].items():
            self._send(folder / POLICIES / name, f"{place}/{POLICIES}/{name}", expected)
        self._send(folder / MANIFEST, f"{place}/{MANIFEST}", "")
        self._incomplete.discard(folder.name)

    def _delete(self, name: str) -> None:
        """Delete a checkpoint, or what was copied of it. The manifest goes first: the rest of a
        deletion that fails is never loaded."""
        self._withdraw(name)
        if self._exists(f"{self._root}/{name}"):
            self._fs.rm(f"{self._root}/{name}", recursive=True)
        self._incomplete.discard(name)

    def _withdraw(self, name: str) -> None:
        """Delete the manifest of a checkpoint, which is then incomplete."""
        if self._exists(f"{self._root}/{name}/{MANIFEST}"):
            self._fs.rm(f"{self._root}/{name}/{MANIFEST}")

    def _exists(self, place: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.exists(place))

    def _get(self, name: str, work: Path) -> None:
        work.mkdir(parents=True)
        place = f"{self._root}/{name}"
        try:
            self._fs.get_file(f"{place}/{MANIFEST}", str(work / MANIFEST))
            for file in read_manifest(work)[1]:
                path = work / POLICIES / file
                path.parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(f"{place}/{POLICIES}/{file}", str(path))
        except Exception as error:
            raise CheckpointError(f"{name} cannot be fetched: {describe(error)}") from error

    def _send(self, path: Path, target: str, expected: str) -> None:
        """Copy a file, and compare its hash and the size of the copy."""
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        digest, size = hashlib.sha256(), path.stat().st_size
        with path.open("rb") as file, self._fs.open(target, "wb") as copy:
            while block := file.read(MAX_BYTES):
                copy.write(block)
                digest.update(block)
        if expected and digest.hexdigest() != expected:
            raise CheckpointError(f"{path} does not match its hash and was not copied")
        self._fs.invalidate_cache()
        if self._fs.size(target) != size:
            raise CheckpointError(f"the copy of {path} in {self._url} is not complete")


def require_unused(url: str) -> None:
    """Raise ConfigError if a folder for the checkpoints of a new run has those of another."""
    if url and (names := RemoteFolder(url).names()):
        raise ConfigError(
            KEY, [f"{url} has checkpoints already, up to {names[0]}; set another folder"]
        )


def fetch_missing(url: str, root: Path, notify: Callable[[str], None]) -> None:
    """If a run that is resumed has no checkpoints, fetch the newest one from its remote folder."""
    if url and next(checkpoints(root), None) is None:
        RemoteFolder(url).fetch(root, notify)


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError:
        advice = "pip install 'pettingllms[remote]'"
        raise CheckpointError(f"{KEY} needs fsspec, which is not installed; {advice}") from None
    try:
        filesystem, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise CheckpointError(f"{KEY}: cannot open {url}: {error}") from error
    return filesystem, str(root).rstrip("/")
