"""The table of episodes of a run that is recorded in shards, for sorting, filtering and paging.

It holds the numbers of every episode, as the shards' indexes have them, and nothing else: the texts
of a page and an opened episode are read when they are shown. New shards are followed, the newest
are read first, and a shard that was replaced, as after resuming from a checkpoint, is read again.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.errors import ConfigError, RecordError, nearest
from pettingllms.runs.episode_summary import KINDS, NUMBERS, TEXTS
from pettingllms.types import Episode
from pettingllms.viewer.blocks import COLUMNS, Block, Column, Stamp, read_block, stamp_of
from pettingllms.viewer.query import (
    JSON_COLUMNS,
    MAX_PAGE,
    NO_STEP,
    OUTCOMES,
    SORTS,
    EpisodeQuery,
    visible_row,
)
from pettingllms.viewer.rows import COLUMNS as SHOWN_COLUMNS
from pettingllms.viewer.search import Mask, Search
from pettingllms.viewer.sources import ViewedRun

PUBLISH_SECONDS = 0.3
"""When a long update first shows what it has read; then each time after twice as long."""
TEXT_BLOCKS = 32
"""Blocks whose texts stay in memory."""
INTEGERS = ("steps", "replies", "tokens", "failed")
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All episodes at one time: blocks in the order of steps, the newest first."""

    blocks: list[Block]
    columns: dict[str, Column]
    starts: Numbers
    """Where every block starts."""

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> "Snapshot":
        """The snapshot of blocks in any order."""
        blocks = sorted(blocks, key=lambda block: (-block.step, block.path.name))
        sizes = [block.size for block in blocks]
        columns = {
            name: np.concatenate([np.zeros(0), *(block.columns[name] for block in blocks)])
            for name in COLUMNS
        }
        columns["step"] = np.repeat([float(block.step) for block in blocks], sizes)
        columns["n"] = np.concatenate(
            [np.zeros(0), *(np.arange(block.first, block.first + block.size) for block in blocks)]
        )
        return cls(blocks, columns, np.cumsum([0, *sizes])[:-1])

    def place(self, at: int) -> tuple[Block, int]:
        """The block of an episode, and its position there."""
        block = int(np.searchsorted(self.starts, at, side="right")) - 1
        return self.blocks[block], at - int(self.starts[block])


class Table:
    """The table of one run. Any thread may query it; updates are serialized."""

    def __init__(self, run: ViewedRun) -> None:
        self.run = run
        self.num_bytes = self.num_bytes_done = 0
        self._blocks: dict[Path, Block] = {}
        self._snapshot = Snapshot.of([])
        self._next = 1
        self._updating, self._searching = threading.Lock(), threading.Lock()
        self._search = Search("")
        self._texts = lru_cache(TEXT_BLOCKS)(Block.texts)

    def update(self, stop: threading.Event | None = None) -> bool:
        """Read new files, and return whether there were any."""
        with self._updating:
            files = self.run.episode_files()
            stamps = {path: stamp for path in files if (stamp := _stamp_of(path)) is not None}
            gone = [path for path, block in self._blocks.items() if stamps.get(path) != block.stamp]
            for path in gone:
                del self._blocks[path]
            new = stamps.keys() - self._blocks.keys()
            self.num_bytes = sum(stamp[0] for stamp in stamps.values())
            self.num_bytes_done = self.num_bytes - sum(stamps[path][0] for path in new)
            newest = sorted(new, key=lambda path: (files[path], path.name), reverse=True)
            problem = self._add({path: files[path] for path in newest}, stop)
            if gone or new:
                self._publish()
            if problem is not None:
                raise problem
            return bool(gone or new)

    def _add(
        self, files: Mapping[Path, int], stop: threading.Event | None
    ) -> RecordError | OSError | None:
        """Read files. One that cannot be read does not hide the others."""
        problem: RecordError | OSError | None = None
        start, seconds = time.monotonic(), PUBLISH_SECONDS
        for path, step in files.items():
            if stop is not None and stop.is_set():
                break
            try:
                block = read_block(path, step, self._next, self.run.reward)
                self._blocks[path] = block
                self._next += block.size
                self.num_bytes_done += block.stamp[0]
            except FileNotFoundError:  # a run that is resumed deletes later steps
                continue
            except (RecordError, OSError) as error:
                problem = problem or error
            if time.monotonic() > start + seconds:
                self._publish()
                seconds *= 2
        return problem

    def _publish(self) -> None:
        self._snapshot = Snapshot.of([*self._blocks.values()])

    def page(self, query: EpisodeQuery) -> dict[str, Any]:
        """One page of rows, the number of matches, and the share of episodes searched for words."""
        if query.sort not in SORTS:
            raise ConfigError("sort", [nearest(query.sort, SORTS)])
        now = self._snapshot
        mask, searched = self._matches(now, query)
        found = self._sorted(now, np.flatnonzero(mask), query)
        start, count = max(0, query.start), max(1, min(query.count, MAX_PAGE))
        rows = [visible_row(self._row(now, int(at))) for at in found[start : start + count]]
        return {"total": len(found), "start": query.start, "rows": rows, "searched": searched}

    def row(self, n: int) -> dict[str, Any] | None:
        """The row of an episode."""
        now = self._snapshot
        found = np.flatnonzero(now.columns["n"] == n)
        return self._row(now, int(found[0])) if len(found) else None

    def neighbors(self, n: int) -> dict[str, int | None]:
        """The rows before and after a row, in the order they were read."""
        numbers = self._snapshot.columns["n"]
        previous, following = numbers[numbers < n], numbers[numbers > n]
        return {
            "previous": int(previous.max()) if len(previous) else None,
            "next": int(following.min()) if len(following) else None,
        }

    def progress(self) -> tuple[int, int | None]:
        """Number of episodes read so far, and the last one's number."""
        numbers = self._snapshot.columns["n"]
        return len(numbers), int(numbers.max()) if len(numbers) else None

    def num_episodes(self) -> int:
        """Number of episodes read so far."""
        return self.progress()[0]

    def numbers(self) -> list[int]:
        """The numbers of all episodes in the order of steps."""
        now = self._snapshot
        order = np.argsort(now.columns["step"], kind="stable")
        return [int(n) for n in now.columns["n"][order]]

    def episode(self, row: dict[str, Any]) -> Episode:
        """Load the full episode of a row."""
        now = self._snapshot
        return self._select(now, np.flatnonzero(now.columns["n"] == row["n"]))[0]

    def step_size(self, row: dict[str, Any]) -> int:
        """Uncompressed bytes of all episodes sampled in the same step."""
        now = self._snapshot
        return int(now.columns["bytes"][_of_step(now, row)].sum())

    def same_step(self, row: dict[str, Any], task: str = "") -> list[Episode]:
        """The episodes sampled in the same step, optionally only those of one task."""
        now = self._snapshot
        found = _of_step(now, row)
        if task:
            found = np.array([at for at in found if self._text(now, at, "task") == task], int)
        return self._select(now, found)

    def _select(self, now: Snapshot, found: Numbers) -> list[Episode]:
        places = itertools.groupby(map(now.place, found), lambda place: place[0])
        return [
            episode
            for block, some in places
            for episode in block.select([position for _, position in some])
        ]

    def _row(self, now: Snapshot, at: int) -> dict[str, Any]:
        """A row as the page shows it, with the file of its step."""
        block, position = now.place(at)
        texts = self._texts(block)
        row: dict[str, Any] = {name: texts[name][position] for name in TEXTS}
        row |= {name: json.loads(row[name]) for name in JSON_COLUMNS}
        row |= {name: _number(now.columns[name][at]) for name in NUMBERS if name in SHOWN_COLUMNS}
        row |= {name: int(row[name]) for name in INTEGERS}
        row |= {"kind": KINDS[int(row["kind"])], "n": int(now.columns["n"][at])}
        return row | {"step": block.step, "path": self._name(block), "start": position}

    def _name(self, block: Block) -> str:
        return f"step {block.step}" if block.step else block.path.name

    def _text(self, now: Snapshot, at: int, name: str) -> str:
        block, position = now.place(at)
        return self._texts(block)[name][position] or ""

    def _matches(self, now: Snapshot, query: EpisodeQuery) -> tuple[Mask, float]:
        if query.outcome not in ("", *OUTCOMES):
            raise ConfigError("outcome", [nearest(query.outcome, OUTCOMES)])
        columns, searched = now.columns, 1.0
        mask = np.ones(len(columns["n"]), bool)
        if query.outcome:
            mask &= OUTCOME_MASKS[query.outcome](columns)
        if query.kind:
            mask &= columns["kind"] == (KINDS.index(query.kind) if query.kind in KINDS else -1)
        if query.first_step > 0:
            mask &= columns["step"] >= query.first_step
        if query.last_step < NO_STEP:
            mask &= columns["step"] <= query.last_step
        if query.text.strip():
            with self._searching:
                if self._search.text != query.text:
                    self._search = Search(query.text)
                searched = self._search.advance(now.blocks)
                mask &= self._search.mask(now.blocks)
        return mask, searched

    def _sorted(self, now: Snapshot, found: Numbers, query: EpisodeQuery) -> Numbers:
        """Episodes in the order of a query. A snapshot is in the order of steps, newest first."""
        if query.sort == "step":
            return found if query.descending else found[::-1]
        if query.sort in TEXTS:
            texts = [text for block in now.blocks for text in block.texts()[query.sort]]
            values = np.unique(np.array(texts, object)[found], return_inverse=True)[1].astype(float)
        else:
            values = now.columns[query.sort][found]
        return found[np.argsort(-values if query.descending else values, kind="stable")]


OUTCOME_MASKS: Mapping[str, Callable[[Mapping[str, Column]], Mask]] = {
    "success": lambda columns: columns["success"] == 1,
    "no_success": lambda columns: columns["success"] == 0,
    "partial": lambda columns: (columns["success"] > 0) & (columns["success"] < 1),
    "failed": lambda columns: columns["has_failure"] == 1,
    "none": lambda columns: np.isnan(columns["success"]),
}


def _stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None if it was deleted."""
    try:
        return stamp_of(path)
    except FileNotFoundError:
        return None


def _of_step(now: Snapshot, row: dict[str, Any]) -> Numbers:
    """The episodes of the step of a row, or of its file if it has no step."""
    if row["step"]:
        return np.flatnonzero(now.columns["step"] == row["step"])
    block, _ = now.place(int(np.flatnonzero(now.columns["n"] == row["n"])[0]))
    start = int(now.starts[now.blocks.index(block)])
    return np.arange(start, start + block.size)


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
