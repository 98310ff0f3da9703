"""What the viewer asks of the episodes of a run, and which index answers it.

Shards bring their own index. Runs and files of JSON lines get one in SQLite.
"""

import threading
from typing import Any, Protocol

from pettingllms.types import Episode
from pettingllms.types.episode_files import LINES
from pettingllms.viewer.index import Index
from pettingllms.viewer.query import EpisodeQuery
from pettingllms.viewer.sources import ViewedRun
from pettingllms.viewer.table import Table


class EpisodeIndex(Protocol):
    """The episodes of a run, for lists and for opening one."""

    run: ViewedRun
    num_bytes: int
    num_bytes_done: int

    def update(self, stop: threading.Event | None = None) -> bool:
        """Read new episodes, and return whether there were any."""
        ...

    def page(self, query: EpisodeQuery) -> dict[str, Any]:
        """One page of rows and the number of matches."""
        ...

    def row(self, n: int) -> dict[str, Any] | None:
        """The row of an episode."""
        ...

    def neighbors(self, n: int) -> dict[str, int | None]:
        """The rows before and after a row, in the order they were read."""
        ...

    def progress(self) -> tuple[int, int | None]:
        """Number of episodes read so far, and the last one's number."""
        ...

    def num_episodes(self) -> int:
        """Number of episodes read so far."""
        ...

    def numbers(self) -> list[int]:
        """The numbers of all episodes in the order of steps."""
        ...

    def episode(self, row: dict[str, Any]) -> Episode:
        """Load the full episode of a row."""
        ...

    def step_size(self, row: dict[str, Any]) -> int:
        """Bytes of all episodes sampled in the same step."""
        ...

    def same_step(self, row: dict[str, Any], task: str = "") -> list[Episode]:
        """The episodes sampled in the same step, optionally only those of one task."""
        ...


def open_index(run: ViewedRun) -> EpisodeIndex:
    """The index of a run, or of one file."""
    suffixes = {path.suffix for path in run.episode_files()}
    return Index(run) if suffixes == {LINES} else Table(run)
