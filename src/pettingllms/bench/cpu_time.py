"""CPU time of processes and their descendants, read from /proc."""

import os
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int | None = None) -> float:
    """CPU time of a process, by default this one, and of all its descendants that are alive."""
    own: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(stat.parent.name)
        own[number] = int(fields[11]) + int(fields[12])
        children.setdefault(int(fields[1]), []).append(number)
    ticks, unseen = 0, [os.getpid() if process is None else process]
    while unseen:
        one = unseen.pop()
        ticks += own.get(one, 0)
        unseen += children.get(one, [])
    return ticks / CLOCK_TICKS
