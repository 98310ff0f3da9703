"""Targets outside the sandbox for the attempts: secrets, servers, processes."""

import fcntl
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pettingllms
from attacks.sharing import SHARED
from pettingllms.sandbox import seccomp
from pettingllms.sandbox.users import UNPRIVILEGED

CALLS = {
    **seccomp.BLOCKED,
    "clone": seccomp.CLONE,
    "clone3": seccomp.CLONE3,
    "ioctl": seccomp.IOCTL,
    "pidfd_open": seccomp.Call(434, 434),
    "capget": seccomp.Call(125, 90),
    "newest": seccomp.Call(468, 468),
    "inotify_init1": seccomp.Call(294, 26),
    "inotify_add_watch": seccomp.Call(254, 27),
    "sendmmsg": seccomp.Call(307, 269),
}
PRELUDE = Path(__file__).with_name("prelude.py").read_text()


@contextmanager
def world() -> Iterator[dict[str, Any]]:
    """All targets by name; removed at the end."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).chmod(0o755)
        Path(folder, "secret").write_text("secret")
        token = secrets.token_hex(8)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"{folder}/socket")
        unix.listen(8)
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{token}")
        abstract.listen(8)
        datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(f"\0{token}-datagrams")
        shared = stack.enter_context(Path(SHARED).open())
        fcntl.lockf(shared, fcntl.LOCK_SH)
        held = stack.enter_context(Path(folder, "secret").open())
        os.set_inheritable(held.fileno(), True)
        victim, spare = (stack.enter_context(_sleeper(UNPRIVILEGED)) for _ in range(2))
        sibling = stack.enter_context(_sleeper(os.geteuid()))
        stack.callback(Path("/dev/shm", token).unlink, missing_ok=True)  # noqa: S108
        yield {
            "folder": folder,
            "secret": f"{folder}/secret",
            "token": token,
            "port": server.getsockname()[1],
            "unix": f"{folder}/socket",
            "abstract": f"\0{token}",
            "abstract_datagrams": f"\0{token}-datagrams",
            "open": held.fileno(),
            "victim": victim.pid,
            "spare": spare.pid,
            "sibling": sibling.pid,
            "home": str(Path.home()),
            "source": str(Path(pettingllms.__file__).parent),
            "machine": os.uname().nodename,
        }


@contextmanager
def _sleeper(user: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user, or, for root, of the user of sandboxed programs."""
    command = ["/usr/bin/sleep", "600"]
    if not os.geteuid() and user:
        ids = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
        command = ["/usr/bin/setpriv", *ids, *command]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def source_of(body: str, known: dict[str, Any]) -> str:
    """A complete program around the body of an attempt."""
    machine = platform.machine()
    calls = {name: getattr(call, machine) for name, call in CALLS.items()}
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    return f"""{PRELUDE}
WORLD = {known!r}
CALLS = {calls!r}
def attempt():
{indented}
try:
    got = attempt()
except (OSError, ValueError, KeyError, MemoryError) as error:
    print("held:", repr(error), flush=True)
else:
    print("GOT IT" if got else "held: in vain", flush=True)
os._exit(0)
"""


def outside(source: str, known: dict[str, Any]) -> str:
    """The output of a program that runs without a sandbox."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", source],
            cwd=folder,
            env={**os.environ, "PETTINGLLMS_TEST_SECRET": "secret"},
            pass_fds=[known["open"]],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    return done.stdout + done.stderr
