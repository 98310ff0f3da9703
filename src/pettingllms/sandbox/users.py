"""User ids of sandboxed programs outside the sandbox: one per sandbox, if root starts them.

The kernel limits pipes, pending signals and watches per user. Sandboxes with the same user could
exhaust each other's limits, and detect each other that way.
"""

import os
import threading
from functools import cache
from pathlib import Path

UNPRIVILEGED = 65533
"""Shared id, for containers in which no other ids are mapped."""
FIRST, NUM_PROCESSES, NUM_EACH = 1 << 30, 1 << 18, 1 << 12
"""An id range that systems do not assign by default, with one part per framework process."""

_lock = threading.Lock()
_taken: set[int] = set()


def take_user() -> int | None:
    """A user id that no other running sandbox has; None if this process is not root."""
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
    """Release a user id for other sandboxes."""
    with _lock:
        _taken.discard(user or 0)


@cache
def _has_range() -> bool:
    """Whether this user namespace maps the id range, for users and groups."""
    return all(_holds(Path(f"/proc/self/{kind}_map").read_text()) for kind in ("uid", "gid"))


def _holds(numbers: str) -> bool:
    ranges = [tuple(map(int, line.split())) for line in numbers.splitlines()]
    last = FIRST + NUM_PROCESSES * NUM_EACH - 1
    return any(first <= FIRST and last < first + size for first, _, size in ranges)
