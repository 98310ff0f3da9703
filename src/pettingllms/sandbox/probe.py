"""Tests whether a sandbox works on this machine, with programs that try to escape from it.

It makes one attempt per protection, within a fraction of a second. The tests have the full list.
"""

import json
import os
import tempfile
from pathlib import Path

from pettingllms.errors import SandboxError
from pettingllms.sandbox.hidden import hidden_folders
from pettingllms.sandbox.program import Limits, Program, Sandbox, python
from pettingllms.sandbox.tiers import view

ATTEMPTS = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
held = {}

def attempt(what, act):
    try:
        held[what] = not act()
    except (OSError, MemoryError):
        held[what] = True

def made_socket(family):
    import _socket
    _socket.socket(family, 1)
    return True

def forked():
    children = []
    try:
        for _ in range(64):
            child = os.fork()
            if not child:
                import signal
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
    return True

def filled():
    for number in range(8):  # a quarter of the disk each
        with open(f"part{number}", "wb", buffering=0) as part:
            if part.write(bytes(1 << 18)) < 1 << 18:
                return False
    return True

def mapped():
    import mmap
    return mmap.mmap(-1, 64 << 20)

secret, *hidden = sys.argv[1:]
attempt("installed packages", lambda: any(os.path.isdir(one) and os.listdir(one) for one in hidden))
attempt("files that others watch", lambda: libc.inotify_init1(0) >= 0)
attempt("shared memory", mapped)
attempt("files of the machine", lambda: os.path.exists(secret) or os.path.exists("/proc/1"))
attempt("software is read-only", lambda: open("/usr/bin/pettingllms-probe", "w"))
attempt("network", lambda: made_socket(2))
attempt("local sockets", lambda: made_socket(1))
attempt("new namespaces", lambda: libc.unshare(0x10000000) == 0)
attempt("system call filter", lambda: libc.personality(0xFFFFFFFF) >= 0)
attempt("no new privileges", lambda: libc.prctl(39, 0, 0, 0, 0) != 1)
attempt("not root", lambda: os.getuid() == 0)
attempt("own process numbers", lambda: os.getppid() != 1)
attempt("disk limit", filled)
attempt("memory limit of a process", lambda: bytearray(1 << 30))
attempt("process limit", forked)
print(json.dumps(held))
"""
ENDLESS = """
import os, time
parts = []
for _ in range(3):
    os.fork()
while True:
    parts.append(b"x" * (1 << 20)); time.sleep(0.001)
"""
LIMITS = Limits(seconds=10, memory_mb=64, num_processes=16, disk_mb=1)


def probe(sandbox: Sandbox) -> None:
    """Raise SandboxError with the protections that do not work."""
    with tempfile.NamedTemporaryFile() as secret:
        os.chmod(secret.name, 0o644)  # noqa: PTH101 - readable, so that only the sandbox can hide it
        package = str(Path(__file__).parents[1])
        hidden = (package, *hidden_folders(tuple(view()[0])))
        program = Program(
            ("python", "main.py", secret.name, *hidden), {"main.py": ATTEMPTS.encode()}
        )
        outcome = sandbox.run(program, LIMITS)
    if not outcome.ok:
        raise SandboxError(
            f"the probe did not run: {outcome.end}, stderr {outcome.stderr.strip()!r}"
        )
    broken = [what for what, held in json.loads(outcome.stdout).items() if not held]
    if sandbox.run(python(ENDLESS), LIMITS).end != "memory":
        broken.append("memory limit of all processes")
    if broken:
        raise SandboxError(f"protections that do not work here: {', '.join(broken)}")
