"""Checkpoints: folders with a manifest, written atomically.

Files are written to a temporary folder, synced to disk and listed with their hashes in the
manifest. Then one rename gives the folder its name. A folder without a manifest, or with a file
that does not match its hash, is never loaded. Ranks of a learner write and hash their own parts of
a policy's files; what reads a checkpoint gets the parts of one file as `Shards`.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.config.renames import player_name
from pettingllms.errors import CheckpointError
from pettingllms.policies.files import Content, Files, read_content, write_content
from pettingllms.policies.tensor_shards import grouped

FORMAT = 2
READABLE = (1, 2)
"""Formats that can be loaded. Format 1 has no files in parts."""
NUM_THREADS = 8
"""Files that are hashed at once."""
MANIFEST = "manifest.json"
POLICIES = "policies"
UNFINISHED = ".unfinished-"
NAME = re.compile(r"step-\d{6,}")
"""Name of a checkpoint's folder; other folders, such as a user's copy, are left alone."""
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
    open_tasks: list[int] = field(default_factory=list)
    """Asynchronous training: numbers of tasks that were in progress (`runs.task_queue`)."""
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
        self._state = deepcopy(state)  # training changes what it refers to before `finish`
        self._final = root / checkpoint_name(state.step)
        self._work = unfinished(root, self._final.name)
        self._hashes: dict[str, str] = {}
        (self._work / POLICIES).mkdir(parents=True)

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

    def record(self, policy: str, hashes: Mapping[str, str]) -> None:
        """List files that learners have written and synced in the folder of a policy."""
        folder = self.folder(policy)
        for name, file_hash in hashes.items():
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder / name} was written by a learner and is not there")
            self._hashes[f"{policy}/{name}"] = file_hash
        _sync(folder)

    def can_carry(self, policy: str) -> bool:
        """Whether the last checkpoint has files of this policy."""
        last = next(checkpoints(self._root), None)
        return last is not None and (last / POLICIES / policy).is_dir()

    def carry(self, policy: str) -> None:
        """Link the files of a policy that never changes from the last checkpoint."""
        last = next(checkpoints(self._root))
        source = last / POLICIES / policy
        folder = self.folder(policy)
        for name, file_hash in read_manifest(last)[1].items():
            owner, _, file = name.rpartition("/")
            if owner == policy:
                write_content(source / file, folder / file)
                _sync(folder / file)
                self._hashes[name] = file_hash
        _sync(folder)

    def finish(self, keep: int, keep_every: int = 0) -> Path:
        """Rename the checkpoint to its final name, then delete the oldest ones beyond `keep`, but
        never the last good one, nor those of steps that `keep_every` divides."""
        manifest = {"format": FORMAT, "state": asdict(self._state), "files": self._hashes}
        _write(self._work / MANIFEST, json.dumps(manifest, indent=1).encode())
        _sync(self._work / POLICIES)
        _sync(self._work)
        self._work.rename(self._final)
        _sync(self._root)
        found = [folder.name for folder in checkpoints(self._root)]
        for old in outdated(found, keep, keep_every, self._state.good):
            # Files that a reader on NFS holds open stay until a later save.
            shutil.rmtree(self._root / old, ignore_errors=True)
        return self._final


def unfinished(root: Path, name: str) -> Path:
    """A new folder's path for a checkpoint that is being written, after leftovers of runs that were
    killed are deleted. The path is used once: leftovers may resist deletion."""
    for left in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    return root / f"{UNFINISHED}{name}-{secrets.token_hex(4)}"


def outdated(names: Sequence[str], keep: int, keep_every: int, good: int) -> list[str]:
    """Of the names of checkpoints, newest first, those to delete."""
    return [
        name
        for name in names[keep:]
        if name != checkpoint_name(good) and not (keep_every and step_of(name) % keep_every == 0)
    ]


def step_of(name: str) -> int:
    """The step of a checkpoint's folder name."""
    return int(name.removeprefix("step-"))


def checkpoint_name(step: int) -> str:
    """The folder name of a step; names sort as steps do."""
    return f"step-{step:06d}"


def checkpoints(root: Path) -> Iterator[Path]:
    """Folders of checkpoints, newest first."""
    found = root.glob("step-*") if root.is_dir() else iter(())
    own = (path for path in found if NAME.fullmatch(path.name) and path.is_dir())
    yield from sorted(own, reverse=True)


def load_checkpoint(folder: Path) -> tuple[State, dict[str, dict[str, bytes]]]:
    """Load a checkpoint, and verify the hash of every file."""
    state, opened = open_checkpoint(folder)
    return state, {
        policy: {name: read_content(content) for name, content in files.items()}
        for policy, files in opened.items()
    }


def open_checkpoint(folder: Path) -> tuple[State, dict[str, dict[str, Content]]]:
    """The state of a checkpoint and where its files are, after the hash of each is verified."""
    state, hashes = read_manifest(folder)
    folder = folder.absolute()  # learners have another working directory
    policies: dict[str, dict[str, Path]] = {}
    for name in hashes:
        policy, _, file = name.rpartition("/")
        policies.setdefault(policy, {})[file] = folder / POLICIES / policy / file

    def verify(named: tuple[str, str]) -> None:
        _verify(folder, *named)

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        for _ in threads.map(verify, hashes.items()):
            pass
    return state, {policy: grouped(files) for policy, files in policies.items()}


def read_manifest(folder: Path) -> tuple[State, dict[str, str]]:
    """The state and the hashes of the files of a checkpoint, which are not verified."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        state = _state(manifest["state"])
        hashes = dict(manifest["files"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{folder} has no readable manifest: {error}") from error
    if manifest.get("format") not in READABLE:
        expected = " or ".join(map(str, READABLE))
        raise CheckpointError(f"{folder} has format {manifest.get('format')}, not {expected}")
    for name in hashes:
        if name.startswith("/") or ".." in name.split("/"):
            raise CheckpointError(f"{folder} lists {name!r:.80}, which is not in its folder")
    return state, hashes


def _verify(folder: Path, name: str, expected: str) -> None:
    try:
        found = _hash(folder / POLICIES / name)
    except OSError as error:
        raise CheckpointError(f"{folder}: {name} cannot be read: {error}") from error
    if found != expected:
        raise CheckpointError(f"{folder}: {name} does not match its hash; is it truncated?")


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
