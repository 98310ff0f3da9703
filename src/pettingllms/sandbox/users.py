"""Who a sandboxed program is outside, where root starts it: a different number for each sandbox.

The kernel counts some things by user (pipes, pending signals, watches), so sandboxes of one user
could starve each other, and tell by it that there are others.
"""

import os
import threading
from functools import cache
from pathlib import Path

UNPRIVILEGED = 65533
"""Where there are no other numbers, as in a container with few of them: one for all."""
FIRST, NUM_PROCESSES, NUM_EACH = 1 << 30, 1 << 18, 1 << 12
"""A range that no system gives to accounts or containers by default; a part for each process."""

_lock = threading.Lock()
_taken: set[int] = set()


def take_user() -> int | None:
    """A number that no other sandbox has now; None if we are not root and cannot become others."""
    if os.geteuid():
        return None
    if not _has_range():
        return UNPRIVILEGED
    start = FIRST + os.getpid() % NUM_PROCESSES * NUM_EACH
    with _lock:
        free = (one for one in range(start, start + NUM_EACH) if one not in _taken)
        user = next(free, UNPRIVILEGED)
        _taken.add(user)
    return user


def give_back(user: int | None) -> None:
    """Let another sandbox have the number."""
    with _lock:
        _taken.discard(user or 0)


@cache
def _has_range() -> bool:
    """Whether this user namespace has the numbers, of users and of groups."""
    return all(_holds(Path(f"/proc/self/{kind}_map").read_text()) for kind in ("uid", "gid"))


def _holds(numbers: str) -> bool:
    ranges = [tuple(map(int, line.split())) for line in numbers.splitlines()]
    last = FIRST + NUM_PROCESSES * NUM_EACH - 1
    return any(first <= FIRST and last < first + size for first, _, size in ranges)
