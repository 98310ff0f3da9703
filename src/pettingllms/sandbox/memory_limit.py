"""Enforces the memory limit of one sandbox, with a control group or by polling its processes."""

from typing import Protocol

from pettingllms.sandbox.cgroup import Group, Place
from pettingllms.sandbox.process_usage import memory_below


class Meter(Protocol):
    """Enforces a limit on the total memory of all processes of a sandbox."""

    entrance: int
    """File descriptor; the first process writes 0 to it to enter the control group. -1 if none."""

    def begin(self, pid: int, memory: int, disk: int) -> None:
        """Start counting. Limits in bytes: memory of the processes below `pid`, and their disk."""
        ...

    def is_over(self) -> bool: ...

    def close(self) -> None:
        """Called when all processes have ended."""
        ...


class PollingMeter:
    """Measures the memory of the processes at each check."""

    entrance = -1

    def begin(self, pid: int, memory: int, disk: int) -> None:  # noqa: ARG002 - the disk has a separate limit
        self._pid, self._limit = pid, memory

    def is_over(self) -> bool:
        return memory_below(self._pid, self._limit) > self._limit

    def close(self) -> None:
        pass


class CgroupMeter:
    """Lets the kernel enforce the limit. The in-memory disk counts as memory of the group."""

    def __init__(self, place: Place) -> None:
        self._group = Group(place)
        self.entrance = self._group.entrance

    def begin(self, pid: int, memory: int, disk: int) -> None:  # noqa: ARG002 - the process is already in the group
        self._group.limit(memory + disk)

    def is_over(self) -> bool:
        return self._group.is_over()

    def close(self) -> None:
        self._group.close()


def make_meter(place: Place | None) -> Meter:
    """A control group if one can be created, else polling."""
    return PollingMeter() if place is None else CgroupMeter(place)
