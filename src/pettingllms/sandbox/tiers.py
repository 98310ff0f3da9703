"""The ways to make a sandbox, best first. Each only says how it is started: whether it holds on
this machine is tried, never assumed (see `probe`)."""

import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from pettingllms.errors import SandboxError
from pettingllms.sandbox.hidden import hidden_folders

NOBODY = 65534
"""Who a program is in its sandbox."""
NUM_FILES = 4096
"""How many files a program may make."""
WORK = "/work"
ENVIRONMENT = {
    "HOME": WORK,
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # the same program does the same again
    "TMPDIR": WORK,
}
"""All that a program finds in its environment."""
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
SHOWN = (
    "/usr",
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/sbin",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
"""What a program sees of the machine, where it is there: installed software, read-only."""
EMPTY = Path("/proc/tty/ldisc")
"""A folder that Linux keeps for old programs, and in which there is nothing."""
OWN_LINKS = {"/tmp": "work", "/dev/shm": "../work", "/dev/zero": "full"}  # noqa: S108
"""Everywhere that a program may write is the one small disk. Zeros are read from /dev/full, which
gives the same and cannot be mapped: a mapping of /dev/zero is memory that no limit counts."""


class Descriptors(NamedTuple):
    """The numbers of open files that a sandbox is started with."""

    control: int
    rules: int
    """The system call filters, to be read."""
    info: int
    """Where the number of process 1 is written, as JSON."""
    entrance: int = -1
    """Of the control group, if there is one."""


class Setup(NamedTuple):
    """What one sandbox is made with."""

    disk_mb: int
    given: Descriptors
    user: int | None = None
    """Who the program is outside; None where we cannot choose."""


class Tier(Protocol):
    """One way to make a sandbox."""

    @property
    def name(self) -> str: ...

    @property
    def advice(self) -> str:
        """What to install or set where it does not hold."""
        ...

    def command(self, setup: Setup) -> list[str]:
        """What to start; it ends when every process in the sandbox has."""
        ...


class Bubblewrap:
    """bubblewrap, with our system call filter."""

    name = "bubblewrap"
    advice = (
        "install bubblewrap (apt install bubblewrap) and allow user namespaces (sysctl "
        "user.max_user_namespaces; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in "
        "docker --security-opt seccomp=unconfined)"
    )

    def command(self, setup: Setup) -> list[str]:
        shown, links = view()
        given = setup.given
        return [
            *_as_nobody(setup.user), _program("bwrap"),
            "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1",
            "--die-with-parent", "--new-session", "--cap-drop", "ALL",
            "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox",
            "--clearenv", *_each("--setenv", ENVIRONMENT.items()),
            *_each("--ro-bind", zip(shown, shown, strict=True)),
            *_masks(hidden_folders(tuple(shown))),
            *_each("--dev-bind", zip(DEVICES, DEVICES, strict=True)),
            *_each("--symlink", ((target, path) for path, target in links.items())),
            "--size", str(setup.disk_mb << 20), "--perms", "0700", "--tmpfs", WORK,
            "--remount-ro", "/", "--chdir", "/",
            "--info-fd", str(given.info),
            *_script("inside.py"), *map(str, (given.control, given.rules, given.entrance)),
        ]  # fmt: skip


class Namespaces:
    """Namespaces, Landlock and the system call filter, set up by a script of ours."""

    name = "namespaces"
    advice = (
        "a kernel from 5.13 on with Landlock (lsm=landlock,... when it boots) that allows user "
        "namespaces (sysctl user.max_user_namespaces; on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0; in docker --security-opt "
        "seccomp=unconfined)"
    )

    def command(self, setup: Setup) -> list[str]:
        shown, links = view()
        given = setup.given
        numbers = (given.control, given.rules, given.info, NOBODY, setup.disk_mb, NUM_FILES)
        return [
            *_as_nobody(setup.user),
            *_script("enter.py"),
            _source("inside.py"),
            *map(str, numbers),
            f"entrance={given.entrance}",
            *(f"shown={path}" for path in shown),
            *(f"hidden={path}" for path in hidden_folders(tuple(shown))),
            *(f"device={path}" for path in DEVICES),
            *(f"link={path}={target}" for path, target in links.items()),
            *(f"set={name}={value}" for name, value in ENVIRONMENT.items()),
        ]


TIERS: dict[str, Tier] = {tier.name: tier for tier in (Bubblewrap(), Namespaces())}


@cache
def view() -> tuple[list[str], dict[str, str]]:
    """What is shown of this machine, and the symbolic links beside it."""
    links = {path: str(Path(path).readlink()) for path in SHOWN if Path(path).is_symlink()}
    shown = [path for path in SHOWN if path not in links and Path(path).exists()]
    return shown, links | OWN_LINKS


def _script(name: str) -> list[str]:
    return [_program("python3"), "-S", "-s", "-c", _source(name)]


@cache
def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _as_nobody(user: int | None) -> list[str]:
    """Before all else root becomes somebody who may do nothing."""
    if user is None:
        return []
    ids = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return [_program("setpriv"), *ids]


def _masks(paths: Iterable[str]) -> list[str]:
    """An empty folder over each of these, which nobody can write to.

    One of the kernel's, where it has it: each new file system makes the end of a sandbox slower.
    """
    if EMPTY.is_dir() and not any(EMPTY.iterdir()):
        return _each("--ro-bind", ((str(EMPTY), path) for path in paths))
    parts: list[str] = []
    for path in paths:
        parts += ["--size", "4096", "--perms", "0555", "--tmpfs", path, "--remount-ro", path]
    return parts


@cache
def _program(name: str) -> str:
    """A program that is installed below /usr, since that is what the sandbox shows."""
    found = shutil.which(name, path="/usr/bin:/usr/local/bin")
    if found is None:
        package = {"bwrap": "bubblewrap", "setpriv": "util-linux"}.get(name, name)
        raise SandboxError(f"there is no {name} in /usr/bin or /usr/local/bin; install {package}")
    return found


def _each(option: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [part for pair in pairs for part in (option, *pair)]
