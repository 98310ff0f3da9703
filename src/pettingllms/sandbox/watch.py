"""What all processes of a sandbox use together, as the kernel counts it for us outside.

Limits that the kernel keeps hold for one process; thirty-two of them could each take that much. So
whoever waits for a program also looks at the whole every few milliseconds. A process cannot hide:
whatever it forks stays below process 1 of the sandbox.
"""

import os
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """All processes below one, without it."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def memory_below(pid: int, limit: int) -> int:
    """Bytes in use by all processes below one.

    Pages that forks share are counted once, but that is slow to find out: so only when counting
    them for each process goes past the limit.
    """
    processes = descendants(pid)
    resident = sum(map(_resident, processes))
    return resident if resident <= limit else sum(map(_share, processes))


def num_files(pid: int, folder: str) -> int:
    """How many files there are on the disk that a process sees at a folder."""
    with suppress(OSError):  # it has ended, and the disk with it
        disk = os.statvfs(f"/proc/{pid}/root{folder}")
        return disk.f_files - disk.f_ffree
    return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_bytes().split())
    return found


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE
    return 0


def _share(pid: int) -> int:
    """Its resident memory, of shared pages its share; all of it where that may not be read."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)
