"""Files of checkpoints for ranks that do not reach the run folder: read and written through Ray.

A process on the driver's node reads and writes for them, one block per rank at a time, so no
process holds a whole file. Ranks that reach the folder, such as a shared disk, never use it.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pettingllms.cluster.watchdog import Watchdog
from pettingllms.errors import CheckpointError
from pettingllms.learners.shard_writer import OutFile, SyncedFile, why_not_written
from pettingllms.policies.files import Content, Files
from pettingllms.policies.sources import Source
from pettingllms.policies.tensor_shards import MAX_BYTES, Shards

Block = np.ndarray[Any, np.dtype[np.uint8]]


class FileServer:
    """Reads and writes files of its node for ranks of other nodes. Its writes return what failed,
    or an empty text."""

    def __init__(self) -> None:
        self._open: dict[Path, SyncedFile] = {}

    def create(self, path: Path) -> str:
        """Begin a file."""
        try:
            self._open[path] = SyncedFile(path)
        except OSError as error:
            return why_not_written(str(path), error)
        return ""

    def write(self, path: Path, block: Block) -> str:
        """Append to a file."""
        try:
            self._open[path].write(block.data)
        except OSError as error:
            return why_not_written(str(path), error)
        return ""

    def finish(self, path: Path) -> str:
        """Sync a file to disk and close it."""
        try:
            self._open.pop(path).__exit__(None, None, None)
        except OSError as error:
            return why_not_written(str(path), error)
        return ""

    def size(self, path: Path) -> int:
        """Size of a file."""
        return path.stat().st_size

    def read(self, path: Path, start: int, size: int) -> Block:
        """Some bytes of a file; fewer at its end."""
        with path.open("rb") as file:
            file.seek(start)
            return np.frombuffer(file.read(size), np.uint8)


@dataclass(frozen=True, slots=True)
class RayFolder:
    """A folder on the driver's node, for a rank that does not reach it."""

    server: Any
    path: Path

    def create(self, name: str) -> OutFile:
        """Create a file."""
        return RayFile(self.server, self.path / name)

    def describe(self, name: str) -> str:
        """Where a file is, for messages."""
        return f"{self.path / name} on the driver's machine"


class RayFile:
    """A file in a RayFolder that is being written."""

    def __init__(self, server: Any, path: Path) -> None:
        self._server, self._path = server, path
        _require(ray.get(server.create.remote(path)))

    def __enter__(self) -> "RayFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        problem = ray.get(self._server.finish.remote(self._path))
        if error is None:
            _require(problem)

    def write(self, content: memoryview) -> None:
        """Append bytes, and wait until they are written."""
        block = np.frombuffer(content, np.uint8)
        _require(ray.get(self._server.write.remote(self._path, block)))


@dataclass(frozen=True, slots=True)
class RaySource:
    """A file on the driver's node, for a rank that does not reach it."""

    server: Any
    path: Path

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def size(self) -> int:
        """Size in bytes."""
        found: int = ray.get(self.server.size.remote(self.path))
        return found

    def read_into(self, start: int, out: memoryview) -> int:
        """Read at most a block; the number of bytes."""
        size = min(len(out), MAX_BYTES)
        block: Block = ray.get(self.server.read.remote(self.path, start, size))
        out[: len(block)] = block.data
        return len(block)


def start_server() -> Any:
    """A server on this node."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(FileServer).options(num_cpus=0, scheduling_strategy=here).remote()


async def reached(actors: Sequence[Any], folder: Path, watchdog: Watchdog) -> list[bool]:
    """Which ranks find a file that this process writes to a folder."""
    token = folder / f".reached-{secrets.token_hex(8)}"
    try:
        token.write_text(token.name, encoding="utf-8")
    except OSError:  # a folder of another user, which this process only reads
        return [False for _ in actors]
    try:
        return await watchdog.answers([actor.sees.remote(token) for actor in actors], "sees")
    finally:
        with suppress(OSError):
            token.unlink()


def through(server: Any, files: Files) -> dict[str, Any]:
    """The same files, read through a server."""
    return {name: _through(server, content) for name, content in files.items()}


def folder_of(files: Mapping[str, Content]) -> Path | None:
    """The folder of files that are given by path; None if all are in memory."""
    for content in files.values():
        some = content.parts if isinstance(content, Shards) else (content,)
        for one in some:
            if isinstance(one, Path):
                return one.parent
    return None


def _through(server: Any, content: Content) -> Any:
    if isinstance(content, Shards):
        return Shards(tuple(_source(server, part) for part in content.parts))
    return content if isinstance(content, bytes) else _source(server, content)


def _source(server: Any, source: Source) -> Source:
    return RaySource(server, source) if isinstance(source, Path) else source


def _require(problem: str) -> None:
    if problem:
        raise CheckpointError(problem)
