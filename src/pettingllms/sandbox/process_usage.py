"""Memory and CPU time of all processes of a sandbox, read from /proc outside the sandbox.

Resource limits apply per process, so 32 processes could each use the full amount. Without a control
group, the thread that waits for a program therefore polls the total every few milliseconds.
Processes cannot hide: every fork stays below process 1 of the sandbox.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pettingllms.sandbox.seccomp import MAX_SHARED_BYTES

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
PIPE_BYTES = 1 << 16
"""Capacity of a pipe; the filter blocks changes to it."""
BUFFER = Path("/proc/sys/net/core/wmem_default")
SOCKET_BYTES = int(BUFFER.read_text()) if BUFFER.exists() else 212_992
"""Capacity of a socket buffer; the filter blocks changes to it."""
SHARED_ANONYMOUS = b"/dev/zero (deleted)"
"""Name of shared anonymous memory in /proc."""


def descendants(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def memory_below(pid: int, limit: int) -> int:
    """Bytes used by all descendants of a process, with shared memory, pipes and sockets.

    Finding pages and pipes that forks share is slow. So they are counted once per process first,
    and exactly only if that sum exceeds the limit.
    """
    tasks = [list(_tasks(process)) for process in descendants(pid)]
    shared = _shared_memory(tasks) + _num_sockets(pid) * SOCKET_BYTES
    resident = shared + sum(map(_resident, tasks)) + PIPE_BYTES // 2 * sum(map(_num_open, tasks))
    if resident <= limit:
        return resident
    return shared + sum(map(_share, tasks)) + _num_pipes(tasks) * PIPE_BYTES


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all its descendants, including those that have ended."""
    ticks = 0
    for process in (pid, *descendants(pid)):
        with suppress(OSError):  # the process has ended; its parent has its time
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # user, system, and both of ended children
    return ticks / TICKS


def num_files(pid: int, folder: str) -> int:
    """Number of files on the disk that a process has mounted at a folder."""
    with suppress(OSError):  # the process has ended
        disk = os.statvfs(f"/proc/{pid}/root{folder}")
        return disk.f_files - disk.f_ffree
    return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _tasks(pid):
        with suppress(OSError):
            found += map(int, (task / "children").read_bytes().split())
    return found


def _tasks(pid: int) -> Iterator[Path]:
    """The threads of a process. The files of the process describe its first thread, which may have
    ended before the others, so callers read the files of each thread."""
    with suppress(OSError):  # the process has ended
        for number in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - numbers
            yield Path(f"/proc/{pid}/task/{number}")


def _resident(tasks: Iterable[Path]) -> int:
    """Resident memory of a process, from the first thread that has not ended."""
    for task in tasks:
        with suppress(OSError):
            pages = int((task / "statm").read_bytes().split()[1])
            if pages:
                return pages * PAGE
    return 0


def _share(tasks: Iterable[Path]) -> int:
    """Proportional set size (PSS) of a process; its resident memory if PSS is not readable."""
    for task in tasks:
        with suppress(OSError):
            for line in (task / "smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    return _resident(tasks)


def _shared_memory(processes: Iterable[Iterable[Path]]) -> int:
    """Upper bound on shared anonymous memory, including segments that are only partly mapped."""
    pieces: set[bytes] = set()
    for tasks in processes:
        for task in tasks:
            with suppress(OSError):
                lines = (task / "maps").read_bytes().splitlines()
                pieces.update(line.split()[4] for line in lines if line.endswith(SHARED_ANONYMOUS))
                if lines:
                    break
    return len(pieces) * MAX_SHARED_BYTES


def _num_sockets(pid: int) -> int:
    """Sockets in the network namespace of the sandbox, even if no process has them open."""
    with suppress(OSError):
        first = Path(f"/proc/{pid}/net/sockstat").read_bytes().split(b"\n", 1)[0]
        return int(first.split()[-1])
    return 0


def _num_open(tasks: Iterable[Path]) -> int:
    """Number of open files of a process, summed over its threads."""
    return sum(len(_open_files(task)) for task in tasks)


def _num_pipes(processes: Iterable[Iterable[Path]]) -> int:
    pipes: set[str] = set()
    for tasks in processes:
        for task in tasks:
            for number in _open_files(task):
                with suppress(OSError):
                    target = os.readlink(task / "fd" / number)  # noqa: PTH115 - a name, not a path
                    if target.startswith("pipe:"):
                        pipes.add(target)
    return len(pipes)


def _open_files(task: Path) -> list[str]:
    with suppress(OSError):
        return os.listdir(task / "fd")  # noqa: PTH208 - numbers
    return []
