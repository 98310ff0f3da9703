"""Sandbox implementations (tiers), best first. A tier only defines how to start a sandbox; `probe`
tests whether it works on this machine."""

import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from pettingllms.errors import SandboxError
from pettingllms.sandbox.hidden import hidden_folders

SANDBOX_USER = 65534
"""User id of a program inside its sandbox."""
NUM_FILES = 4096
"""Maximum number of files of a program."""
WORK = "/work"
ENVIRONMENT = {
    "HOME": WORK,
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",  # reproducible runs
    "TMPDIR": WORK,
}
"""All environment variables of a program."""
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
"""Paths of the machine that a program can read, if they exist: installed software."""
EMPTY = Path("/proc/tty/ldisc")
"""A folder of Linux that is always empty."""
OWN_LINKS = {"/tmp": "work", "/dev/shm": "../work", "/dev/zero": "full"}  # noqa: S108
"""Symbolic links in the sandbox. All writable paths lead to one small disk. /dev/zero leads to
/dev/full, which also returns zeros but cannot be mapped: no limit counts mappings of /dev/zero."""


class Descriptors(NamedTuple):
    """File descriptors that a sandbox inherits."""

    control: int
    rules: int
    """To read the system call filters from."""
    info: int
    """To write the process id of process 1 to, as JSON."""
    entrance: int = -1
    """To enter the control group; -1 if there is none."""


class Setup(NamedTuple):
    """Settings of one sandbox."""

    disk_mb: int
    given: Descriptors
    user: int | None = None
    """User id outside the sandbox; None if this process is not root."""


class Tier(Protocol):
    """One sandbox implementation."""

    @property
    def name(self) -> str: ...

    @property
    def advice(self) -> str:
        """What to install or configure if the tier does not work."""
        ...

    def command(self, setup: Setup) -> list[str]:
        """The command to start, which ends when all processes in the sandbox have ended."""
        ...


class Bubblewrap:
    """bubblewrap with the system call filter of this package."""

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
            *_drop_root(setup.user), _program("bwrap"),
            "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1",
            "--die-with-parent", "--new-session", "--cap-drop", "ALL",
            "--uid", str(SANDBOX_USER), "--gid", str(SANDBOX_USER), "--hostname", "sandbox",
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
    """Namespaces, Landlock and the system call filter, set up by `enter`."""

    name = "namespaces"
    advice = (
        "use Linux 5.13 or later with Landlock (boot with lsm=landlock,...) and allow user "
        "namespaces (sysctl user.max_user_namespaces; on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0; in docker --security-opt "
        "seccomp=unconfined)"
    )

    def command(self, setup: Setup) -> list[str]:
        shown, links = view()
        given = setup.given
        numbers = (given.control, given.rules, given.info, SANDBOX_USER, setup.disk_mb, NUM_FILES)
        return [
            *_drop_root(setup.user),
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
    """Paths of this machine to show in the sandbox, and symbolic links to create."""
    links = {path: str(Path(path).readlink()) for path in SHOWN if Path(path).is_symlink()}
    shown = [path for path in SHOWN if path not in links and Path(path).exists()]
    return shown, links | OWN_LINKS


def _script(name: str) -> list[str]:
    return [_program("python3"), "-S", "-s", "-c", _source(name)]


@cache
def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _drop_root(user: int | None) -> list[str]:
    """Command prefix that switches from root to an unprivileged user."""
    if user is None:
        return []
    ids = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return [_program("setpriv"), *ids]


def _masks(paths: Iterable[str]) -> list[str]:
    """Options that mount an empty read-only folder over each path.

    They use an empty folder of the kernel if it exists, because each new file system slows down the
    end of a sandbox.
    """
    if EMPTY.is_dir() and not any(EMPTY.iterdir()):
        return _each("--ro-bind", ((str(EMPTY), path) for path in paths))
    parts: list[str] = []
    for path in paths:
        parts += ["--size", "4096", "--perms", "0555", "--tmpfs", path, "--remount-ro", path]
    return parts


@cache
def _program(name: str) -> str:
    """Path of a program below /usr, which the sandbox shows."""
    found = shutil.which(name, path="/usr/bin:/usr/local/bin")
    if found is None:
        package = {"bwrap": "bubblewrap", "setpriv": "util-linux"}.get(name, name)
        raise SandboxError(f"{name} not found in /usr/bin or /usr/local/bin; install {package}")
    return found


def _each(option: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [part for pair in pairs for part in (option, *pair)]
