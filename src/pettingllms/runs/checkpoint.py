"""Checkpoints: folders with a manifest, written atomically.

Files are written to a temporary folder, synced to disk and listed with their hashes in the
manifest. Then one rename gives the folder its name. A folder without a manifest, or with a file
that does not match its hash, is never loaded.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.config.renames import player_name
from pettingllms.errors import CheckpointError
from pettingllms.policies.files import Files, write_content

FORMAT = 1
MANIFEST = "manifest.json"
POLICIES = "policies"
UNFINISHED = ".unfinished-"
RENAMED = {"marks": "weight_hashes", "company": "co_players"}
"""Fields of a state, by their names in version 0.1."""
COMPONENTS_0_1 = ("league", "co_players", "guard")
"""Fields of a state in version 0.1 that are states of components now."""
SNAPSHOT_0_1 = {"mark": "weight_hash"}
"""Fields of a snapshot in a pool, by their names in version 0.1."""


@dataclass(slots=True)
class State:
    """The state of a run, except weights."""

    step: int = 0
    """Completed steps."""
    num_tasks_done: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """Version of each policy that learns."""
    weight_hashes: dict[str, str] = field(default_factory=dict)
    """Hash of each such policy's weights."""
    algorithm: dict[str, float] = field(default_factory=dict)
    """State of the algorithm, such as baselines."""
    components: dict[str, dict[str, Any]] = field(default_factory=dict)
    """State of each component, such as the league or the curriculum, by its name."""
    num_tokens: int = 0
    """Tokens that policies that learn have sampled in all steps."""
    good: int = 0
    """Step of the newest checkpoint after which no policy showed a sign of collapse; 0: none."""


class Writer:
    """Writes a checkpoint policy by policy, so that none has to stay in memory."""

    def __init__(self, root: Path, state: State) -> None:
        root = root.absolute()  # learners have another working directory
        self._root = root
        self._state = state
        self._final = root / checkpoint_name(state.step)
        self._work = root / (UNFINISHED + self._final.name)
        self._hashes: dict[str, str] = {}
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)

    def folder(self, policy: str) -> Path:
        """The folder of a policy in the unfinished checkpoint, where learners may write its files
        before they are added."""
        folder = self._work / POLICIES / policy
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add(self, policy: str, files: Files) -> None:
        """Write the files of a policy, unless they are already there."""
        folder = self.folder(policy)
        for name, content in files.items():
            path = folder / name
            if content != path:
                write_content(content, path)
            _sync(path)
            self._hashes[f"{policy}/{name}"] = _hash(path)
        _sync(folder)

    def carry(self, policy: str) -> bool:
        """Link the files of a policy that never changes from the last checkpoint; False if that has
        none, and they must be added."""
        last = next(checkpoints(self._root), None)
        source = last / POLICIES / policy if last else None
        if last is None or source is None or not source.is_dir():
            return False
        hashes = json.loads((last / MANIFEST).read_bytes())["files"]
        folder = self.folder(policy)
        for path in sorted(source.iterdir()):
            write_content(path, folder / path.name)
            _sync(folder / path.name)
            self._hashes[f"{policy}/{path.name}"] = hashes[f"{policy}/{path.name}"]
        _sync(folder)
        return True

    def finish(self, keep: int) -> Path:
        """Rename the checkpoint to its final name, then delete the oldest ones beyond `keep`, but
        never the last good one."""
        manifest = {"format": FORMAT, "state": asdict(self._state), "files": self._hashes}
        _write(self._work / MANIFEST, json.dumps(manifest, indent=1).encode())
        _sync(self._work)
        self._work.rename(self._final)
        _sync(self._root)
        for old in list(checkpoints(self._root))[keep:]:
            if old.name != checkpoint_name(self._state.good):
                shutil.rmtree(old)
        return self._final


def checkpoint_name(step: int) -> str:
    """The folder name of a step; names sort as steps do."""
    return f"step-{step:06d}"


def checkpoints(root: Path) -> Iterator[Path]:
    """Folders of checkpoints, newest first."""
    found = root.glob("step-*") if root.is_dir() else iter(())
    yield from sorted((path for path in found if path.is_dir()), reverse=True)


def load_checkpoint(folder: Path) -> tuple[State, dict[str, dict[str, bytes]]]:
    """Load a checkpoint, and verify the hash of every file."""
    state, paths = open_checkpoint(folder)
    return state, {
        policy: {name: path.read_bytes() for name, path in files.items()}
        for policy, files in paths.items()
    }


def open_checkpoint(folder: Path) -> tuple[State, dict[str, dict[str, Path]]]:
    """The state of a checkpoint and the paths of its files, after the hash of each is verified."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        state = _state(manifest["state"])
        wanted = dict(manifest["files"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{folder} has no readable manifest: {error}") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has format {manifest.get('format')}, not {FORMAT}")
    folder = folder.absolute()  # learners have another working directory
    policies: dict[str, dict[str, Path]] = {}
    for name, expected in wanted.items():
        policy, _, file = name.rpartition("/")
        path = folder / POLICIES / policy / file
        try:
            found = _hash(path)
        except OSError as error:
            raise CheckpointError(f"{folder}: {name} cannot be read: {error}") from error
        if found != expected:
            raise CheckpointError(f"{folder}: {name} does not match its hash; is it truncated?")
        policies.setdefault(policy, {})[file] = path
    return state, policies


def _state(saved: Mapping[str, Any]) -> State:
    """The state in a manifest of this version or of 0.1."""
    fields = {RENAMED.get(name, name): value for name, value in dict(saved).items()}
    fields.pop("under_way", None)  # tasks in progress, which 0.1 listed and never read
    components = fields.setdefault("components", {})
    if "level" in fields:
        level, recent = fields.pop("level"), fields.pop("recent", [])
        components["curriculum"] = {"level": level, "recent": recent}
    for name in COMPONENTS_0_1:
        if state := fields.pop(name, None):
            components[name] = _component_0_1(state)
    return State(**fields)


def _component_0_1(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a component in version 0.1, with the names of this version."""
    found = {player_name(key): value for key, value in state.items()}
    if "pool" in found:
        found["pool"] = [
            {SNAPSHOT_0_1.get(name, name): value for name, value in snapshot.items()}
            for snapshot in found["pool"]
        ]
    for name in "payoff", "ratings":
        if name in found:
            found[name] = _renamed_players(found[name])
    return found


def _renamed_players(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        player_name(name): _renamed_players(value) if isinstance(value, Mapping) else value
        for name, value in table.items()
    }


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
