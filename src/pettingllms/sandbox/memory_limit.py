"""Who keeps the memory limit of one sandbox: the kernel, by a control group, or we, by looking."""

from typing import Protocol

from pettingllms.sandbox.cgroup import Group, Place
from pettingllms.sandbox.process_usage import memory_below


class Meter(Protocol):
    """Keeps the limit on the memory of all processes of a sandbox together."""

    entrance: int
    """An open file to which the first process writes 0 before it starts anything; -1 if none."""

    def begin(self, pid: int, memory: int, disk: int) -> None:
        """Start to count: bytes for the processes below this one, and bytes for their disk."""
        ...

    def is_over(self) -> bool: ...

    def close(self) -> None:
        """Called once all processes are gone."""
        ...


class Looks:
    """Counts from outside what processes use, at each look."""

    entrance = -1

    def begin(self, pid: int, memory: int, disk: int) -> None:  # noqa: ARG002 - it is counted apart
        self._pid, self._limit = pid, memory

    def is_over(self) -> bool:
        return memory_below(self._pid, self._limit) > self._limit

    def close(self) -> None:
        pass


class Counted:
    """Lets the kernel count, and end what goes past the limit. The disk is memory to it as well."""

    def __init__(self, place: Place) -> None:
        self._group = Group(place)
        self.entrance = self._group.entrance

    def begin(self, pid: int, memory: int, disk: int) -> None:  # noqa: ARG002 - it is in the group
        self._group.limit(memory + disk)

    def is_over(self) -> bool:
        return self._group.is_over()

    def close(self) -> None:
        self._group.close()


def make_meter(place: Place | None) -> Meter:
    """The best that there is: a control group where one can be made."""
    return Looks() if place is None else Counted(place)
