"""Machines that are namespaces of this one, each with a Ray node of one cluster.

Every machine has its own network, processes, host name, hosts file and temporary folders, and all
are private to the process tree of `unshare`: nothing is left when it ends, even when it is killed.
Only the folder of a test is shared.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NETWORK = "10.77.0"
NAMES = ("head", "worker1", "worker2")
ADDRESS = f"{NETWORK}.1:6379"
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MACHINE = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
START_SECONDS = 180.0


def why_impossible() -> str:
    """Why this machine cannot have such machines in it; empty if it can."""
    for program in ("setpriv", "unshare", "ip", "mount"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    trial = "mount -t tmpfs tmpfs /run && ip link add br0 type bridge && ip netns add one"
    found = subprocess.run(
        [*UNSHARE, "sh", "-c", trial], capture_output=True, text=True, check=False
    )
    return f"needs network namespaces: {found.stderr.strip()[-200:]}" if found.returncode else ""


def inside(script: str, *arguments: str) -> list[str]:
    """The command that runs a script as the first process of private namespaces."""
    return ["setpriv", "--pdeathsig", "KILL", *UNSHARE, sys.executable, script, *arguments]


def as_init(work: Callable[[], int]) -> None:
    """Do the work in a child, since the first process of a namespace must reap all orphans."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = work()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 255)


def sh(command: str) -> None:
    subprocess.run(["/bin/sh", "-ec", command], check=True)


class Machine:
    """A machine as seen from outside; it takes commands as files of the shared folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._count = 0

    def start(self, *command: str) -> int:
        """Start a command; its number."""
        self._count += 1
        new = self._folder / f"{self.name}.new"
        new.write_text(json.dumps(command))
        new.rename(self._folder / f"{self.name}.{self._count}.command")
        return self._count

    def said(self, number: int) -> str:
        log = self._folder / f"{self.name}.{number}.log"
        return log.read_text(errors="replace") if log.is_file() else ""

    def code(self, number: int) -> int | None:
        """The exit code of a command; None while it runs."""
        file = self._folder / f"{self.name}.{number}.code"
        return int(file.read_text()) if file.is_file() else None

    def run(self, *command: str, seconds: float = 300) -> tuple[int, str]:
        """Run a command to its end; its exit code and output."""
        number = self.start(*command)
        code = wait_for(lambda: self.code(number), seconds, f"{command} on {self.name}")
        return int(code), self.said(number)


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := condition()) is not None and found is not False:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:g} s for {what}")


@contextmanager
def machines(folder: Path, binds: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, Machine]]:
    """A head and two workers. `binds` are files that a machine has in the place of others."""
    sh("mount -t tmpfs tmpfs /run; mkdir /run/netns; ip link set lo up")
    sh("ip link add br0 type bridge; ip link set br0 up")
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(os.urandom(32).hex())
    started = []
    try:
        for at, name in enumerate(NAMES, 1):
            sh(
                f"ip netns add {name}; ip link add v{at} type veth peer name eth0 netns {name};"
                f"ip link set v{at} master br0 up; ip -n {name} link set lo up;"
                f"ip -n {name} addr add {NETWORK}.{at}/24 dev eth0; ip -n {name} link set eth0 up"
            )
            own = [str(folder), name, str(at), json.dumps(dict(binds.get(name, {})))]
            machine = [*MACHINE, sys.executable, __file__, *own]
            started.append(
                subprocess.Popen(["/usr/bin/env", "ip", "netns", "exec", name, *machine])
            )
        for name in NAMES:
            wait_for((folder / f"{name}.ready").exists, START_SECONDS, f"Ray on {name}")
        yield {name: Machine(name, folder) for name in NAMES}
    finally:
        for process in started:
            process.kill()


def _machine(folder: Path, name: str, number: int, binds: Mapping[str, str]) -> int:
    """The life of a machine: Ray, then the commands that it is given."""
    socket.sethostname(name)
    hosts = folder / f"{name}.hosts"  # as Debian writes it
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    sh(f"mount --bind {hosts} /etc/hosts; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run")
    for place, content in binds.items():
        sh(f"mount --bind {content} {place}")
    Path("/run/tmp").mkdir()
    os.environ.update(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(folder / "token"),
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_niceness="0",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1",
        TMPDIR="/run/tmp",
    )
    own = [
        "ray",
        "start",
        f"--node-ip-address={NETWORK}.{number}",
        "--num-cpus=1",
    ]  # so that two ranks do not share a machine
    own += ["--object-store-memory=150000000", "--disable-usage-stats"]
    if number == 1:
        own += ["--head", "--port=6379", "--temp-dir=/run/ray", "--include-dashboard=false"]
    else:
        wait_for(_head_accepts, START_SECONDS, "the head")
        own += [f"--address={ADDRESS}"]
    with (folder / f"{name}.ray.log").open("wb") as log:
        subprocess.run(own, check=True, stdout=log, stderr=log, timeout=START_SECONDS)
    (folder / f"{name}.ready").touch()
    _obey(folder, name)
    return 0


def _head_accepts() -> bool:
    with suppress(OSError), socket.create_connection((f"{NETWORK}.1", 6379), timeout=1):
        return True
    return False


def _obey(folder: Path, name: str) -> None:
    """Run commands side by side as they come, for as long as the machine lives."""
    running: list[tuple[Path, subprocess.Popen[bytes]]] = []
    while True:
        for file in sorted(folder.glob(f"{name}.*.command")):
            command: Sequence[str] = json.loads(file.read_text())
            with file.with_suffix(".log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            running.append((file, process))
            file.unlink()
        for file, process in running:
            if process.poll() is not None and not (code := file.with_suffix(".code")).exists():
                new = file.with_suffix(".new")
                new.write_text(str(process.returncode))
                new.rename(code)
        time.sleep(0.1)


if __name__ == "__main__":
    given = sys.argv[1:]
    as_init(lambda: _machine(Path(given[0]), given[1], int(given[2]), json.loads(given[3])))
