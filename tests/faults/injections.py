"""Faults, as functions that the driver of a run calls to inject them."""

import os
import secrets
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from pettingllms.sandbox.process_usage import descendants

CGROUPS = Path("/sys/fs/cgroup")
NEXT_TO_NOTHING = 2**16


def kill(title: str, number: int = 0) -> None:
    """Kill -9 of one of the processes whose command line begins with a title."""
    os.kill(pids(title)[number], signal.SIGKILL)


def stop(title: str, number: int = 0) -> None:
    """SIGSTOP of such a process."""
    os.kill(pids(title)[number], signal.SIGSTOP)


def kill_driver() -> None:
    """Kill -9 of this process; what it has started is on its own."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_head() -> None:
    """Kill -9 of Ray's head. A tiny run would be over before its bound, which is made shorter."""
    from pettingllms.cluster import watched_run

    watched_run.LOST_SECONDS, watched_run.PROBE_SECONDS = 3.0, 0.2
    kill("gcs_server")


def fill(folder: str) -> None:
    """Fill the disk of a folder."""
    with (Path(folder) / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**14))


def starve(title: str, number: int = 0) -> None:
    """Let the kernel kill a process for want of memory, in a cgroup that has next to none."""
    root = memory_cgroups()
    group = root / f"pettingllms-{secrets.token_hex(4)}"
    group.mkdir()
    limit = group / "memory.limit_in_bytes"
    (limit if limit.exists() else group / "memory.max").write_text(str(NEXT_TO_NOTHING))
    (group / "cgroup.procs").write_text(str(pids(title)[number]))
    threading.Thread(target=_remove, args=[group], daemon=True).start()


def write(file: str, text: str = "") -> None:
    """Write a file that signals to another process."""
    Path(file).write_text(text, encoding="utf-8")


def memory_cgroups() -> Path:
    """Where cgroups with a memory limit are made."""
    return CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS


def pids(title: str) -> list[int]:
    """Processes of this run whose command line begins so, or whose program it is; oldest first."""
    return [pid for pid in sorted(descendants(os.getpid())) if _is(pid, title)]


def _is(pid: int, title: str) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return line.startswith(title) or line.split("\0")[0].endswith(f"/{title}")


def _remove(group: Path) -> None:
    """Remove a cgroup once nothing is in it."""

    while (group / "cgroup.procs").read_text():
        time.sleep(0.2)
    group.rmdir()
