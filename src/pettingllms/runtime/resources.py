"""CPU cores and memory that this process may use, by affinity and container limits."""

import os
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")
UNBOUND = "nobind"
"""Instead of a list of cores: threads may run on any core."""


@dataclass(frozen=True, slots=True)
class CoreShare:
    """One process's part of the cores of its machine. It is sent to the process as a share and
    computed there, because nodes of a cluster differ."""

    number: int = 0
    """Of the process among those that share the machine."""
    count: int = 1
    """Processes that share the machine."""
    num_threads: int | None = None
    """Threads of all of them together; None: one per core."""
    binds: bool = True
    """Whether each process is bound to its own cores."""

    @property
    def threads(self) -> int:
        """Threads of this process on this machine."""
        return max(1, (self.num_threads or num_cores()) // self.count)

    @property
    def cores(self) -> str:
        """The cores of this process, shared on a small machine, or `UNBOUND`. Under a CPU quota
        processes are not bound: containers on one machine would all take the first cores."""
        usable = cores()
        if not self.binds or num_cores() < len(usable):
            return UNBOUND
        share = max(1, len(usable) // self.count)
        first = self.number * share % len(usable)
        return ",".join(map(str, usable[first : first + share]))


def wanted_threads() -> int | None:
    """Threads that the user asks for with OMP_NUM_THREADS; None if it is not set."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) else None


def cores() -> list[int]:
    """Indices of the cores that this process may run on. A CPU quota of the container may grant
    less time, but names no cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def num_cores() -> int:
    """Number of cores that this process may use, by its affinity and its container's quota."""
    quota, _, period = _of_container("cpu.max").partition(" ")
    allowed = len(cores())
    return min(allowed, max(1, int(quota) // int(period))) if quota.isdecimal() else allowed


def memory() -> tuple[int, int]:
    """Free and total bytes of memory, of the machine or its container."""
    table = Path("/proc/meminfo")
    if not table.exists():
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return whole, whole
    lines = (line.split() for line in table.read_text().splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines}
    free, whole = sizes["MemAvailable:"], sizes["MemTotal:"]
    bound, used = _of_container("memory.max"), _of_container("memory.current")
    if bound.isdecimal() and used.isdecimal():
        return min(free, int(bound) - int(used)), min(whole, int(bound))
    return free, whole


def in_gib(size: float) -> str:
    """Bytes as a human-readable text."""
    return f"{size / GIB:.1f} GiB"


def _of_container(name: str) -> str:
    try:
        return (CGROUP / name).read_text().strip()
    except OSError:
        return ""
