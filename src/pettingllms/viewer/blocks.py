"""Blocks of the table of episodes: one per file, with columns of numbers for filters and sorting.

The block of a shard is the shard's own index, so listing reads no episodes. The block of a file of
JSON lines, or of a shard that was written without summaries, is computed from its lines.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.config import RewardConfig
from pettingllms.errors import RecordError
from pettingllms.runs.episode_summary import NUMBERS, TEXTS, summarize_line
from pettingllms.types import Episode, Shard, episode_from_json, image_loader
from pettingllms.types.episode_files import LINES

Column = npt.NDArray[np.float64]
Stamp = tuple[int, int, int]
INVALID_LINE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Raised by reading a line that is not an episode."""
COLUMNS = ("bytes", *NUMBERS)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The episodes of a file, at one time."""

    path: Path
    step: int
    stamp: Stamp
    first: int
    """Number of its first episode in the table."""
    size: int
    columns: dict[str, Column]
    known_texts: dict[str, list[str | None]] | None = None
    """The texts of a file without an index."""

    def texts(self) -> dict[str, list[str | None]]:
        """The texts of every episode."""
        return self._shard().texts() if self.known_texts is None else self.known_texts

    def chunks(self) -> Iterator[list[bytes]]:
        """The lines of its episodes, frame by frame."""
        for lines in _chunks(self.path):
            if self.path.suffix != LINES:
                self._shard()
            yield lines

    def select(self, positions: list[int]) -> list[Episode]:
        """The episodes at some positions."""
        if self.path.suffix != LINES:
            return self._shard().select(positions)
        (lines,), load_image = _chunks(self.path), image_loader(self.path)
        return [episode_from_json(json.loads(lines[at]), load_image) for at in positions]

    def _shard(self) -> Shard:
        """The shard; RecordError if it was replaced, so that its episodes are others."""
        if stamp_of(self.path) != self.stamp:
            raise RecordError(
                f"{self.path} was replaced, as when a run is resumed; try again in a moment"
            )
        return Shard(self.path)


def stamp_of(path: Path) -> Stamp:
    """Differs if a file was replaced or has grown."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def read_block(path: Path, step: int, first: int, weights: RewardConfig) -> Block:
    """The block of a file."""
    stamp = stamp_of(path)
    if path.suffix != LINES:
        index = Shard(path).index()
        if all(name in index.numbers for name in COLUMNS):
            columns = {name: index.numbers[name] for name in COLUMNS}
            return Block(path, step, stamp, first, index.num_episodes, columns)
    numbers: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    texts: dict[str, list[str | None]] = {name: [] for name in TEXTS}
    for number, line in enumerate((line for chunk in _chunks(path) for line in chunk), start=1):
        try:
            data = json.loads(line)
            found, named = summarize_line(data, weights)
            for name, value in {"bytes": len(line), **found}.items():
                numbers[name].append(value)
            for name, text in {"id": data["id"], **named}.items():
                texts[name].append(text)
        except (*INVALID_LINE, RecordError) as error:
            raise RecordError(
                f"{path}, episode {number}: not an episode ({error!r}); was it cut short?"
            ) from error
    columns = {name: np.array(values, np.float64) for name, values in numbers.items()}
    return Block(path, step, stamp, first, len(texts["id"]), columns, texts)


def _chunks(path: Path) -> Iterator[list[bytes]]:
    if path.suffix == LINES:
        lines = path.read_bytes().splitlines(keepends=True)
        yield [line for line in lines if line.endswith(b"\n")]
        return
    shard = Shard(path)
    for number in range(len(shard.index().frames)):
        yield shard.lines(number)
