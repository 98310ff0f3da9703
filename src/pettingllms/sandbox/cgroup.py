"""Control groups: the kernel counts and limits the total memory of a sandbox.

A group counts memory that polling processes misses: unmapped shared memory, buffers of pipes and
sockets, and short-lived processes. The group of a sandbox is below the group of this process, so
the limits of this process also apply to it. Version 2 is used if it has the memory controller, else
version 1. Without permission to create groups, `process_usage` polls processes instead.
"""

import itertools
import os
import secrets
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

PREFIX = "pettingllms-"
REMOVE_SECONDS = 2.0
"""Timeout for the removal of a group whose processes have ended."""
UNLIMITED = "max"
_numbers = itertools.count()


class Files(NamedTuple):
    """File names of one cgroup version."""

    limit: str
    usage: str
    kills: str
    """Contains a line `oom_kill N`."""
    swap: str
    """Limits swap alone (version 2), or the sum of memory and swap (version 1)."""


VERSIONS = {
    2: Files("memory.max", "memory.current", "memory.events", "memory.swap.max"),
    1: Files(
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.oom_control",
        "memory.memsw.limit_in_bytes",
    ),
}


class Place(NamedTuple):
    """A cgroup folder in which groups for sandboxes can be created."""

    version: int
    folder: Path


class Group:
    """The control group of one sandbox. Its first process enters by writing 0 to `entrance`."""

    def __init__(self, place: Place) -> None:
        self._version = place.version
        self._files = VERSIONS[place.version]
        self._folder = (
            place.folder / f"{PREFIX}{os.getpid()}-{next(_numbers)}-{secrets.token_hex(4)}"
        )
        self._folder.mkdir()
        self.entrance = os.open(self._folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def limit(self, num_bytes: int) -> None:
        """Set the limit to current usage plus `num_bytes`; the kernel kills processes beyond it."""
        most = self._read_usage() + num_bytes
        if self._version == 2:
            self._write(self._files.swap, 0)
            with suppress(OSError):  # before Linux 4.19
                (self._folder / "memory.oom.group").write_text("1")
        self._write_bytes(self._files.limit, most)
        if self._version == 1:
            self._write(self._files.swap, most)

    def is_over(self) -> bool:
        """Whether the kernel has killed a process of the group for exceeding the limit."""
        for line in (self._folder / self._files.kills).read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number) > 0
        return False

    def close(self) -> None:
        """Remove the group, whose processes have already been killed."""
        os.close(self.entrance)
        deadline = time.monotonic() + REMOVE_SECONDS
        while time.monotonic() < deadline:
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # the last process has not ended yet
                time.sleep(0.001)
            else:
                return

    def _read_usage(self) -> int:
        return int((self._folder / self._files.usage).read_text())

    def _write_bytes(self, name: str, num_bytes: int) -> None:
        (self._folder / name).write_text(str(num_bytes))

    def _write(self, name: str, value: int) -> None:
        """Write to a file that exists only on kernels with swap accounting."""
        path = self._folder / name
        if path.exists():
            path.write_text(str(value))


@cache
def find_place() -> Place | None:
    """Where this process can create groups, or None. Removes groups of dead processes first."""
    place = place_for(Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"))
    if place is not None:
        remove_leftovers(place)
    return place


def place_for(memberships: Path, mounts: Path) -> Place | None:
    """Where groups can be created, given the cgroup and mountinfo files of this process."""
    try:
        groups, mounted = memberships.read_text(), mounts.read_text()
    except OSError:
        return None
    for version, kind, controller in ((2, "cgroup2", ""), (1, "cgroup", "memory")):
        mount = _mounted(mounted, kind, controller)
        own = _membership(groups, controller)
        if mount is None or own is None:
            continue
        top, root = mount
        below = os.path.relpath(own, root)
        if below.startswith(".."):
            continue  # the mount does not include the group of this process
        folder = (top / below).resolve()
        for candidate in _candidates(version, folder, top):
            if _works(version, candidate):
                return Place(version, candidate)
    return None


def remove_leftovers(place: Place) -> None:
    """Remove groups whose owner was killed before it could remove them."""
    for folder in place.folder.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            with suppress(OSError):  # already removed by another process, or not empty
                folder.rmdir()


def _mounted(mounts: str, kind: str, controller: str) -> tuple[Path, str] | None:
    """Mount point of a hierarchy, and the group at its top."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, options = before.split(" "), after.split(" ")
        if options[0] == kind and (not controller or controller in options[-1].split(",")):
            return Path(fields[4]), fields[3]
    return None


def _membership(groups: str, controller: str) -> str | None:
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller or (controller and controller in controllers.split(",")):
            return path
    return None


def _candidates(version: int, folder: Path, top: Path) -> list[Path]:
    """Groups to try: the group of this process and, in version 2, its ancestors, because a version
    2 group that contains processes cannot pass controllers to its children."""
    if version == 1:
        return [folder]
    above = [folder, *folder.parents]
    return [one for one in above if one == top or top in one.parents]


def _works(version: int, folder: Path) -> bool:
    """Whether this process can create a group there and set its memory limit."""
    if version == 2:
        control = folder / "cgroup.subtree_control"
        with suppress(OSError):
            if "memory" not in control.read_text().split():
                return False
    trial = folder / f"{PREFIX}{os.getpid()}-trial-{secrets.token_hex(4)}"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        limit = trial / VERSIONS[version].limit
        limit.write_text(str(1 << 40))
        with (trial / "cgroup.procs").open("w"):
            return limit.exists()
    except OSError:
        return False
    finally:
        with suppress(OSError):
            trial.rmdir()
