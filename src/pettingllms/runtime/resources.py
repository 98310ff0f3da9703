"""CPU cores and memory that this process may use, by affinity and container limits."""

import os
from pathlib import Path

GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")


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
