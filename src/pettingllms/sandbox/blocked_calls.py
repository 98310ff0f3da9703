"""Counts the blocked system calls of one sandbox, which the kernel reports to a seccomp listener.

A call waits until the listener answers it. Every answer is an error, so the listener can never let
a call through, and it does not read the arguments. It exists on Linux only; the counts of recorded
episodes are read everywhere. After `MAX_COUNTED` calls the listener closes,
and the kernel returns the same errors without reporting them.
"""

import os
import select
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from pettingllms.sandbox.seccomp import call_name, error_of

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND."""
REQUEST, ANSWER = struct.Struct("<QIIiIQ6Q"), struct.Struct("<QqiI")
METRIC = "refused_calls"
MAX_COUNTED = 1000
"""Maximum of counted calls per program; further calls are blocked without a count."""

ORDINARY = frozenset(
    (
        "accept", "accept4", "bind", "connect", "fcntl", "flock", "inotify_add_watch",
        "inotify_init", "inotify_init1", "io_uring_setup", "ioctl", "listen", "mbind",
        "memfd_create", "mmap", "personality", "prlimit64", "recvmsg", "sendmsg", "sendmmsg",
        "set_mempolicy", "setsockopt", "socket", "socketpair", "splice",
    )
)  # fmt: skip
"""Blocked calls that libraries make, or that a program can make by mistake."""


@dataclass(slots=True)
class BlockedCalls:
    """Blocked system calls of all programs that ran in one context."""

    num_programs: int = 0
    """Number of programs whose calls were counted."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of blocked calls by name."""


_seen: ContextVar[BlockedCalls | None] = ContextVar("refused_calls", default=None)


class Listener:
    """Answers the blocked calls of one sandbox with errors, and counts them by name."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.counts: Counter[str] = Counter()

    def answer(self) -> bool:
        """Answer the pending call with an error; return whether more calls can follow.

        Poll first: the calling process may have been killed, and receiving would then block.
        """
        events = self._events()
        if not events & select.POLLIN:
            return not events  # else: all processes have ended
        import fcntl

        request = bytearray(REQUEST.size)
        with suppress(FileNotFoundError):  # the calling process has ended
            fcntl.ioctl(self.descriptor, RECEIVE, request)
            found = REQUEST.unpack(request)
            self.counts[call_name(found[3])] += 1
            fcntl.ioctl(self.descriptor, SEND, ANSWER.pack(found[0], 0, -error_of(found[3]), 0))
        return self.counts.total() < MAX_COUNTED

    def _events(self) -> int:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return next((events for _, events in poll.poll(0)), 0)

    def close(self) -> None:
        """Close the listener. The kernel blocks further calls without reporting them."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@contextmanager
def refused_calls() -> Iterator[BlockedCalls]:
    """Count the blocked system calls of all programs that run in this context."""
    found = BlockedCalls()
    token = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(token)


def record(refused: Counter[str]) -> None:
    """Add a program's blocked calls to the current context, if there is one."""
    found = _seen.get()
    if found is not None:
        found.num_programs += 1
        found.counts.update(refused)


def to_metrics(found: BlockedCalls) -> dict[str, float]:
    """Metrics of an environment step: the total and the count per call. Empty if no program ran."""
    if not found.num_programs:
        return {}
    named = {f"{METRIC}/{name}": float(count) for name, count in found.counts.items()}
    return {METRIC: float(found.counts.total()), **named}


def from_metrics(metrics: Mapping[str, float]) -> Counter[str] | None:
    """Blocked calls by name, from the metrics of a step; None if no program ran in it."""
    if METRIC not in metrics:
        return None
    prefix = f"{METRIC}/"
    return Counter(
        {
            name.removeprefix(prefix): int(count)
            for name, count in metrics.items()
            if name.startswith(prefix)
        }
    )


def is_probing(name: str) -> bool:
    """Whether a blocked call suggests an escape attempt."""
    return name not in ORDINARY
