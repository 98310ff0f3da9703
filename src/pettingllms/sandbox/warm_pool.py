"""A pool of warm sandboxes with a started interpreter, so that programs start without delay.

Each sandbox is used once. One thread starts them all and lives as long as this process. The kernel
kills a sandbox with the thread that started it, so all of them end if this process is killed.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pettingllms.errors import SandboxError
from pettingllms.runtime.call_clock import pause_call_clock
from pettingllms.runtime.resources import num_cores
from pettingllms.sandbox.box import Box
from pettingllms.sandbox.cgroup import find_place
from pettingllms.sandbox.program import Limits, Outcome, Program
from pettingllms.sandbox.tiers import Tier

NUM_CORES = num_cores()
NUM_WARM = max(4, 2 * NUM_CORES)
NUM_RUNNING = max(16, 8 * NUM_CORES)
"""Maximum of simultaneous programs. Others wait, so that busy cores cause fewer timeouts."""


class WarmSandbox:
    """Runs programs in sandboxes of one tier. Safe for use by several threads."""

    def __init__(self, tier: Tier, num_warm: int = NUM_WARM, *, cgroups: bool = True) -> None:
        """With `cgroups`, use control groups for the memory limit if this machine allows it."""
        self.tier = tier
        self.is_logged = False
        """Whether blocked system calls are counted; known once a program has run."""
        self._place = find_place() if cgroups else None
        self._num_warm = num_warm
        self._begin()
        atexit.register(self.close)

    def _begin(self) -> None:
        """Create the state of this process. A fork creates new state and ignores the inherited."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(NUM_RUNNING)
        self._starter = ThreadPoolExecutor(1, "sandboxes")
        self._warm: deque[tuple[int, Future[Box]]] = deque()
        self._running: set[Box] = set()
        self._closed = threading.Event()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        from pettingllms.sandbox.detect import open_sandbox

        return open_sandbox, (self.tier.name,)

    @property
    def cgroup_version(self) -> int | None:
        """cgroup version that enforces the memory limit; None if processes are polled."""
        return self._place.version if self._place else None

    @pause_call_clock()
    def run(self, program: Program, limits: Limits = Limits()) -> Outcome:  # noqa: B008 - immutable
        """Run a program to its end or to a limit."""
        if self._owner != os.getpid():
            self._inherited = self._warm, self._running
            self._begin()
        given_mb = sum(map(len, program.files.values())) >> 20
        with self._places:
            box = self._take(limits.disk_mb + given_mb)
            self.is_logged = box.is_logged
            try:
                return box.run(program, limits)
            finally:
                with self._lock:
                    self._running.discard(box)

    def close(self) -> None:
        """Destroy all sandboxes, waiting or running. Later calls of `run` raise."""
        if self._owner != os.getpid():
            return
        with self._lock:
            self._closed.set()
            waiting = [made for _, made in self._warm]
            boxes = list(self._running)
            self._warm.clear()
        for box in boxes:
            box.kill()
        for made in waiting:
            if not made.cancel() and made.exception() is None:
                made.result().close()
        self._starter.shutdown(wait=False)
        atexit.unregister(self.close)

    def _take(self, disk_mb: int) -> Box:
        """Take a sandbox with a disk of this size and start replacements."""
        with self._lock:
            if self._closed.is_set():
                raise SandboxError("the sandbox is closed; call open_sandbox() for a new one")
            mine = next((one for one in self._warm if one[0] == disk_mb), None)
            if mine is None:
                mine = self._order(disk_mb)
            else:
                self._warm.remove(mine)
            while sum(size == disk_mb for size, _ in self._warm) < self._num_warm:
                self._warm.append(self._order(disk_mb))
            extra = [self._warm.popleft() for _ in range(len(self._warm) - 2 * self._num_warm)]
        for _, made in extra:
            if not made.cancel() and made.exception() is None:
                made.result().close()
        box = mine[1].result()
        box.wait_until_ready()
        with self._lock:
            if not self._closed.is_set():
                self._running.add(box)
                return box
        box.close()
        raise SandboxError("the sandbox was closed while a program waited for it")

    def _order(self, disk_mb: int) -> tuple[int, "Future[Box]"]:
        return disk_mb, self._starter.submit(Box, self.tier, disk_mb, self._place)
