"""Refused system calls of one sandbox, as the kernel hands them to the listener of its filter.

A call waits until it is answered, and every answer here is an error: no answer lets a call through.
What a program passes along with a call is not read. A program that makes more calls than are
counted gets the same errors from the kernel itself, since the listener is closed then.
"""

import fcntl
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
"""Refused calls of one program; more are refused, and not counted."""

ORDINARY = frozenset(
    (
        "accept", "accept4", "bind", "connect", "fcntl", "flock", "inotify_add_watch",
        "inotify_init", "inotify_init1", "io_uring_setup", "ioctl", "listen", "mbind",
        "memfd_create", "mmap", "personality", "prlimit64", "recvmsg", "sendmsg", "sendmmsg",
        "set_mempolicy", "setsockopt", "socket", "socketpair", "splice",
    )
)  # fmt: skip
"""Calls that a program may make without looking for a way out: by a library, or by mistake."""


@dataclass(slots=True)
class Refusals:
    """What programs were refused in one context."""

    num_programs: int = 0
    """Those whose calls were counted."""
    counts: Counter[str] = field(default_factory=Counter)
    """Refused calls by name."""


_seen: ContextVar[Refusals | None] = ContextVar("refused_calls", default=None)


class Listener:
    """Answers the refused calls of one sandbox, and counts them by name."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.counts: Counter[str] = Counter()

    def answer(self) -> bool:
        """Refuse the call that waits; whether there can be more.

        To receive where no call waits would block: whoever made it may have been killed since.
        """
        events = self._events()
        if not events & select.POLLIN:
            return not events  # otherwise all processes have ended
        request = bytearray(REQUEST.size)
        with suppress(FileNotFoundError):  # whoever made the call is gone
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
        """Leave the rest to the kernel, which refuses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@contextmanager
def refused_calls() -> Iterator[Refusals]:
    """Count the refused calls of all programs that are run in this context."""
    found = Refusals()
    token = _seen.set(found)
    try:
        yield found
    finally:
        _seen.reset(token)


def note(refused: Counter[str]) -> None:
    """Add a program's refused calls to the count that is under way, if one is."""
    found = _seen.get()
    if found is not None:
        found.num_programs += 1
        found.counts.update(refused)


def to_metrics(found: Refusals) -> dict[str, float]:
    """Numbers for the step of an episode: the total, and calls by name. Empty if no program ran."""
    if not found.num_programs:
        return {}
    named = {f"{METRIC}/{name}": float(count) for name, count in found.counts.items()}
    return {METRIC: float(found.counts.total()), **named}


def from_metrics(metrics: Mapping[str, float]) -> Counter[str] | None:
    """Refused calls by name, from the numbers of a step; None if no program ran in it."""
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
    """Whether nobody makes a call by mistake."""
    return name not in ORDINARY
