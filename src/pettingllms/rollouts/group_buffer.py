"""Bounded staleness: which groups may start, and which finished groups a batch may contain.

A group is all episodes of one task. Each policy counts its own versions. The staleness of a group
is the largest number of versions by which a policy that learns from it has moved on since its
oldest turn in the group. A batch contains whole groups whose staleness is within the bound; older
ones are dropped.

The buffer has no clock and does no work itself, so training, property tests and the simulator make
the same decisions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Versions = Mapping[str, int]
"""A version per policy."""


def oldest_versions(turns: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Per policy, the version of its oldest turn. A turn is given as policy and version."""
    oldest: dict[str, int] = {}
    for policy, version in turns:
        oldest[policy] = min(version, oldest.get(policy, version))
    return oldest


@dataclass(frozen=True, slots=True)
class Group(Generic[T]):
    """A finished group."""

    key: int
    content: T
    oldest: Versions
    """Per policy that learns from the group, the version of its oldest turn."""

    def staleness(self, versions: Versions) -> int:
        """How many versions the policies have moved on since the group's oldest turns."""
        return max((versions[name] - version for name, version in self.oldest.items()), default=0)


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What `take` returns."""

    groups: list[Group[T]]
    """Groups to train on, by key."""
    dropped: list[Group[T]]
    """Groups that were too old."""


class GroupBuffer(Generic[T]):
    """The groups of a run that are in progress or finished, up to a bound."""

    def __init__(self, batch_size: int, max_staleness: int) -> None:
        self._batch_size = batch_size
        self._max_staleness = max_staleness
        self._in_progress: set[int] = set()
        self._finished: list[Group[T]] = []
        self._seen: tuple[dict[str, int], int] = {}, 0
        """Versions at the last `take`, and how many finished groups it kept as usable."""
        self.num_training = 0
        """Groups that were taken and are not yet part of published weights."""

    @property
    def num_to_start(self) -> int:
        """How many groups may start now. If groups were taken in the order in which they started,
        none would exceed the bound: a group waits for at most `max_staleness` batches."""
        most = self._batch_size * (1 + self._max_staleness)
        return max(0, most - self.num_training - self.num_waiting)

    @property
    def num_waiting(self) -> int:
        """Groups that are in progress, or finished and not taken."""
        return len(self._in_progress) + len(self._finished)

    @property
    def num_finished(self) -> int:
        """Groups that are finished and not taken."""
        return len(self._finished)

    def start(self, key: int) -> None:
        """A group starts."""
        assert key not in self._in_progress  # noqa: S101 - our own keys
        self._in_progress.add(key)

    def finish(self, key: int, content: T, oldest: Versions) -> None:
        """All episodes of a group have ended."""
        self._in_progress.remove(key)
        self._finished.append(Group(key, content, oldest))

    def take(self, versions: Versions, size: int) -> Batch[T]:
        """The stalest groups within the bound, once there are `size` of them; before that, none.
        Groups beyond the bound are dropped in any case."""
        same, num_kept = self._seen
        start = num_kept if same == versions else 0  # only newer groups can be too old
        new = self._finished[start:]
        dropped = [group for group in new if group.staleness(versions) > self._max_staleness]
        if dropped:
            new = [group for group in new if group.staleness(versions) <= self._max_staleness]
            self._finished[start:] = new
        usable = self._finished
        taken: list[Group[T]] = []
        if len(usable) >= size:
            usable.sort(key=lambda group: -group.staleness(versions))  # stable: else as they ended
            taken, self._finished = usable[:size], usable[size:]
        self._seen = dict(versions), len(self._finished)
        self.num_training += len(taken)
        return Batch(sorted(taken, key=lambda group: group.key), dropped)

    def published(self) -> None:
        """The weights that were trained on all taken groups are in use."""
        self.num_training = 0
