"""Progress of this process, which another process of the machine can see: a time in a file.

A watchdog asks for it, because a process that hangs cannot answer itself. It is the time since the
machine started, because the wall clock may jump.
"""

import os
import struct
import time
from pathlib import Path

_SECONDS = struct.Struct("d")
_files: list[int] = []


def show_progress_in(file: Path) -> None:
    """Create the file, and let `tick` write the time to it from now on."""
    _files[:] = [os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)]
    tick()


def tick() -> None:
    """Note that work goes on; takes microseconds."""
    for file in _files:
        os.pwrite(file, _SECONDS.pack(time.monotonic()), 0)


def quiet_seconds(file: Path) -> float:
    """Seconds since the last tick of the process that shows its progress in the file."""
    (last,) = _SECONDS.unpack(file.read_bytes())
    return max(0.0, time.monotonic() - float(last))
