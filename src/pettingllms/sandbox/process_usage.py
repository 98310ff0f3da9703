"""What all processes of a sandbox use together, as the kernel counts it for us outside.

Limits that the kernel keeps hold for one process; thirty-two of them could each take that much. So
where there is no control group, whoever waits for a program also looks at the whole every few
milliseconds. A process cannot hide: whatever it forks stays below process 1 of the sandbox.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pettingllms.sandbox.seccomp import MAX_SHARED_BYTES

PAGE = os.sysconf("SC_PAGE_SIZE")
PIPE_BYTES = 1 << 16
"""What a pipe holds; the filter refuses to make it larger."""
BUFFER = Path("/proc/sys/net/core/wmem_default")
SOCKET_BYTES = int(BUFFER.read_text()) if BUFFER.exists() else 212_992
"""What waits in a socket at most; the filter refuses to make it more."""
SHARED_ANONYMOUS = b"/dev/zero (deleted)"
"""What the kernel calls shared memory without a file."""


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
    """Bytes in use by all processes below one, with their shared memory, pipes and sockets.

    Pages and pipes that forks share are counted once, but that is slow to find out: so only when
    counting them for each process goes past the limit.
    """
    tasks = [list(_tasks(process)) for process in descendants(pid)]
    shared = _shared_memory(tasks) + _num_sockets(pid) * SOCKET_BYTES
    resident = shared + sum(map(_resident, tasks)) + PIPE_BYTES // 2 * sum(map(_num_open, tasks))
    if resident <= limit:
        return resident
    return shared + sum(map(_share, tasks)) + _num_pipes(tasks) * PIPE_BYTES


def num_files(pid: int, folder: str) -> int:
    """How many files there are on the disk that a process sees at a folder."""
    with suppress(OSError):  # it has ended, and the disk with it
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
    """The threads of a process. The first of them may have ended before the others: what the
    kernel tells of the process is about that one, so each thread is asked."""
    with suppress(OSError):  # it has ended
        for number in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - numbers
            yield Path(f"/proc/{pid}/task/{number}")


def _resident(tasks: Iterable[Path]) -> int:
    """The resident memory of a process, from the first thread that still has it."""
    for task in tasks:
        with suppress(OSError):
            pages = int((task / "statm").read_bytes().split()[1])
            if pages:
                return pages * PAGE
    return 0


def _share(tasks: Iterable[Path]) -> int:
    """Its resident memory, of shared pages its share; all of it where that may not be read."""
    for task in tasks:
        with suppress(OSError):
            for line in (task / "smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    return _resident(tasks)


def _shared_memory(processes: Iterable[Iterable[Path]]) -> int:
    """The most that pieces of shared anonymous memory can hold, whatever of them is mapped."""
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
    """Sockets of the sandbox's network namespace, those that no process has open too."""
    with suppress(OSError):
        first = Path(f"/proc/{pid}/net/sockstat").read_bytes().split(b"\n", 1)[0]
        return int(first.split()[-1])
    return 0


def _num_open(tasks: Iterable[Path]) -> int:
    """Open files of a process; a thread may have its own."""
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
