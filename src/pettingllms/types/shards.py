"""Shards: compressed files of episodes, each a zip archive that any tool can list and unpack.

Episodes are in frames, so that reading some does not read the file. The last members of the archive
are an index: the number of episodes of every frame, and columns of numbers and texts, one value per
episode. A shard appears under its name when it is complete. Nothing in it is pickled.
"""

import itertools
import json
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from pettingllms.errors import RecordError, describe
from pettingllms.types.episodes import Episode
from pettingllms.types.frames import FORMAT, LINES, PARTS, FrameReader, FrameWriter
from pettingllms.types.image_files import image_loader, store_images
from pettingllms.types.records import images_in

SUFFIX = ".zip"
PART = ".part"
INDEX, INDEX_NUMBERS, INDEX_TEXTS = "index.json", "index.numbers", "index.texts.json"
MAX_EPISODES, MAX_BYTES = 256, 8_000_000
"""Episodes and uncompressed bytes of a frame; a larger episode gets its own frame."""
MAX_PART = 2**30
"""Uncompressed bytes of a member, or of all parts of a frame, that are read; what claims more is
damaged or hostile."""
LEVEL = 6
"""Level of deflate. Level 1 takes up to a third less time, and 5 to 25% more bytes."""
Summary = tuple[Mapping[str, float | None], Mapping[str, str | None]]
"""Numbers and texts of an episode for the columns of an index; all episodes have the same names."""
Summarize = Callable[[Episode], Summary]
"""Computes the summary of an episode."""
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Raised by reading an archive that is truncated, damaged, encrypted or something else."""


class ShardWriter:
    """Writes a shard: append episodes, then close it.

    Leaving a `with` block by an exception discards the shard. A killed writer leaves a file that no
    reader looks at.
    """

    def __init__(self, path: Path, summarize: Summarize | None = None) -> None:
        self.path = path
        self.num_episodes = 0
        self._summarize = summarize
        self._part = part_of(path)
        self._zip = zipfile.ZipFile(self._part, "w")
        self._frame = FrameWriter()
        self._frames: list[int] = []
        self._numbers: dict[str, list[float | None]] = {"bytes": []}
        self._texts: dict[str, list[str | None]] = {"id": []}
        self._images: set[str] = set()

    def append(self, episode: Episode) -> None:
        """Append an episode, and store its images beside the shard."""
        before = self._frame.num_bytes
        self._frame.add(episode)
        self.num_episodes += 1
        images = {image.digest: image for turn in episode.turns for image in images_in(turn)}
        store_images(self.path, (images[one] for one in images.keys() - self._images))
        self._images |= images.keys()
        numbers, texts = self._summarize(episode) if self._summarize else ({}, {})
        self._numbers["bytes"].append(self._frame.num_bytes - before)
        self._texts["id"].append(episode.id)
        for name, number in numbers.items():
            self._numbers.setdefault(name, []).append(number)
        for name, text in texts.items():
            self._texts.setdefault(name, []).append(text)
        if self._frame.num_episodes == MAX_EPISODES or self._frame.num_bytes >= MAX_BYTES:
            self._end_frame()

    def close(self) -> int:
        """Write the index and rename the file; return the number of episodes."""
        if self._frame.num_episodes:
            self._end_frame()
        index = {"format": FORMAT, "frames": self._frames, "numbers": [*self._numbers]}
        self._add(INDEX, json.dumps(index).encode())
        self._add(INDEX_NUMBERS, np.array([*self._numbers.values()], "<f8").tobytes())
        self._add(INDEX_TEXTS, json.dumps(self._texts, separators=(",", ":")).encode())
        self._zip.close()
        self._part.replace(self.path)
        return self.num_episodes

    def discard(self) -> None:
        """Delete what was written, unless it is complete."""
        self._zip.close()
        self._part.unlink(missing_ok=True)

    def _end_frame(self) -> None:
        for name, data in self._frame.parts().items():
            self._add(f"{len(self._frames):06d}.{name}", data)
        self._frames.append(self._frame.num_episodes)
        self._frame = FrameWriter()

    def _add(self, name: str, data: bytes) -> None:
        member = zipfile.ZipInfo(name)  # dated 1980, so that equal episodes give equal files
        self._zip.writestr(member, data, zipfile.ZIP_DEFLATED, LEVEL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.close()
        finally:
            self.discard()


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What a shard contains, without its episodes and texts."""

    frames: list[int]
    """Number of episodes of every frame."""
    numbers: dict[str, npt.NDArray[np.float64]]
    """One value per episode, NaN for none: `bytes`, and what the writer's `summarize` returned."""

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return sum(self.frames)


class Shard:
    """Reads a shard. Every method opens the file, and reads no more of it than asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def index(self) -> ShardIndex:
        """The number of episodes of every frame, and the numbers of every episode."""
        with self._opened() as archive:
            return _read_index(archive)

    def texts(self) -> dict[str, list[str | None]]:
        """The texts of every episode: `id`, and what the writer's `summarize` returned."""
        with self._opened() as archive:
            num_episodes, found = (
                sum(_read_frames(archive)),
                json.loads(_read(archive, INDEX_TEXTS)),
            )
            if any(len(texts) != num_episodes for texts in found.values()):
                raise ValueError("texts and frames differ in length")
            return dict(found)

    def episodes(self) -> Iterator[Episode]:
        """All episodes, with one frame in memory at a time."""
        with self._opened() as archive:
            for number in range(len(_read_frames(archive))):
                yield from self._read_frame(archive, number)

    def select(self, positions: Sequence[int]) -> list[Episode]:
        """The episodes at some positions, in that order; reads only their frames."""
        with self._opened() as archive:
            starts = [0, *itertools.accumulate(_read_frames(archive))]
            found: dict[int, Episode] = {}
            for number, wanted in itertools.groupby(
                sorted(set(positions)), lambda position: bisect_right(starts, position) - 1
            ):
                frame = self._read_frame(archive, number)
                found |= {position: frame[position - starts[number]] for position in wanted}
            return [found[position] for position in positions]

    def _read_frame(self, archive: zipfile.ZipFile, number: int) -> list[Episode]:
        names = {part: f"{number:06d}.{part}" for part in PARTS}
        sizes = [archive.getinfo(n).file_size for n in names.values() if n in archive.NameToInfo]
        _check_size(f"frame {number}", sum(sizes))
        parts = {
            part: _read(archive, name)
            for part, name in names.items()
            if part == LINES or name in archive.NameToInfo
        }
        return list(FrameReader(parts, image_loader(self.path)).episodes())

    def lines(self, number: int) -> list[bytes]:
        """The lines of a frame: JSON with roles, texts, rewards and failures, without arrays."""
        with self._opened() as archive:
            return _read(archive, f"{number:06d}.{LINES}").splitlines()

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            # Unbuffered: a buffer would read what lies between the parts.
            with self.path.open("rb", buffering=0) as file, zipfile.ZipFile(file) as archive:
                yield archive
        except FileNotFoundError:
            raise
        except RecordError as error:
            raise RecordError(f"{self.path}: {error}") from None
        except UNREADABLE as error:
            raise RecordError(
                f"{self.path}: not a shard of episodes ({describe(error)}); "
                "the file may be truncated"
            ) from error


def part_of(path: Path) -> Path:
    """Where a shard is while it is being written."""
    return path.with_name(f".{path.name}{PART}")


def _read_index(archive: zipfile.ZipFile) -> ShardIndex:
    index = json.loads(_read(archive, INDEX))
    if index["format"] != FORMAT:
        raise RecordError(
            f"has format {index['format']!r}, this version reads {FORMAT}; "
            "read it with the version that wrote it"
        )
    numbers = np.frombuffer(_read(archive, INDEX_NUMBERS), "<f8")
    columns = numbers.reshape(len(index["numbers"]), sum(index["frames"]))
    return ShardIndex(index["frames"], dict(zip(index["numbers"], columns, strict=True)))


def _read_frames(archive: zipfile.ZipFile) -> list[int]:
    return [int(count) for count in json.loads(_read(archive, INDEX))["frames"]]


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    _check_size(name, archive.getinfo(name).file_size)
    return archive.read(name)


def _check_size(name: str, size: int) -> None:
    if size > MAX_PART:
        raise RecordError(f"{name} claims {size:,} bytes; expected at most {MAX_PART:,}")
