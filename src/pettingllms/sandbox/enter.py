"""Builds the `namespaces` sandbox: namespaces, a private root, Landlock, no capabilities and the
system call filter. Then `inside` runs in the same interpreter. The source of this file is passed to
`python -c`.

Landlock is a second layer behind the mounts: it denies access to everything outside the new root
and prevents changes to mounts. If any step fails, the process exits.

This file needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` is slow to import
import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` is slower still
    from typing import NoReturn

libc = ctypes.CDLL(None, use_errno=True)

NEW_NAMESPACES = 0x7E020000  # mount, cgroup, uts, ipc, user, pid, net
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 24, 38, 22
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 1 << 14, 1 << 18  # fmt: skip  # noqa: E501
MNT_DETACH, AT_FDCWD, AT_RECURSIVE = 2, -100, 0x8000
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MOUNT_SETATTR = 442
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
WRITE_DEVICE = 1 << 1 | 1 << 2 | 1 << 14  # write, read, truncate
NODES = 1 << 6 | 1 << 9 | 1 << 11  # devices and sockets: never created
ON_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
ACCESSES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file access rights per Landlock version."""


class Settings:
    """Command line arguments: six numbers, then `key=value` pairs."""

    def __init__(self, words: list[str]) -> None:
        self.control, self.rules, self.info, self.user, self.disk_mb, self.num_files = map(
            int, words[:6]
        )
        pairs = [word.partition("=")[::2] for word in words[6:]]
        self.entrance = next((int(value) for key, value in pairs if key == "entrance"), -1)
        self.hidden = [value for key, value in pairs if key == "hidden"]
        self.shown = [value for key, value in pairs if key == "shown"]
        self.devices = [value for key, value in pairs if key == "device"]
        self.links = dict(value.split("=", 1) for key, value in pairs if key == "link")
        self.environment = dict(value.split("=", 1) for key, value in pairs if key == "set")


def check(result: int, what: str) -> int:
    """Exit with the reason if a system call failed."""
    if result < 0:
        reason = os.strerror(ctypes.get_errno())
        sys.exit(f"the kernel denied {what}: {reason}")
    return result


def call(what: str, number: int, *arguments: object) -> int:
    """Make a system call that the C library may not wrap."""
    return check(libc.syscall(ctypes.c_long(number), *arguments), what)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount, or exit with the reason."""
    parts = [part.encode() if part else None for part in (source, target, kind, data)]
    result = libc.mount(parts[0], parts[1], parts[2], ctypes.c_ulong(flags), parts[3])
    check(result, f"the mount of {source or kind} on {target}")


def write(path: str, text: str) -> None:
    """Write to a file in /proc."""
    with open(path, "w") as file:
        file.write(text)


def isolate(settings: Settings) -> None:
    """Enter new namespaces of every kind, as an unprivileged user who cannot create more."""
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(NEW_NAMESPACES), "new namespaces (unshare)")
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{settings.user} {user} 1")
    write("/proc/self/gid_map", f"{settings.user} {group} 1")
    write("/proc/sys/user/max_user_namespaces", "0")
    check(libc.sethostname(b"sandbox", 7), "a new hostname (sethostname)")


def build(settings: Settings) -> None:
    """Create a private root with read-only system folders and a small in-memory disk at /work."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=64,mode=755")  # noqa: S108
    os.chdir("/tmp")  # noqa: S108 - the new root is assembled here
    for path in settings.shown:
        place(path, 0x1 | 0x2 | 0x4)  # read-only, no set-uid programs, no devices
    hide(settings.hidden)
    for path in settings.devices:
        place(path, 0x1 | 0x2 | 0x8)  # read-only, no set-uid programs, nothing to execute
    for path, target in settings.links.items():
        os.symlink(target, "." + path)
    os.mkdir("work")
    size = f"size={settings.disk_mb}m,nr_inodes={settings.num_files},mode=700"
    mount("tmpfs", "work", "tmpfs", MS_NOSUID | MS_NODEV, size)
    number = PIVOT_ROOT[os.uname().machine]
    call("a new root (pivot_root)", number, b".", b".")
    check(libc.umount2(b".", MNT_DETACH), "unmounting the old root (umount)")
    os.chdir("/")
    mount("", "/", "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def place(path: str, attributes: int) -> None:
    """Bind-mount a folder or file of the machine at the same path below the current folder."""
    os.makedirs(os.path.dirname("." + path), exist_ok=True)
    if os.path.isdir(path):
        os.mkdir("." + path)
    else:
        os.close(os.open("." + path, os.O_CREAT))
    mount(path, "." + path, "", MS_BIND | MS_REC)
    packed = struct.pack("<QQQQ", attributes, 0, 0, 0)
    call(f"the attributes of {path} (mount_setattr)", MOUNT_SETATTR, AT_FDCWD,
         ("." + path).encode(), AT_RECURSIVE, packed, ctypes.c_size_t(len(packed)))  # fmt: skip


def hide(paths: list[str]) -> None:
    """Mount an empty read-only folder over each path."""
    if not paths:
        return
    os.mkdir("empty", 0o755)
    for path in paths:
        mount("empty", "." + path, "", MS_BIND)
        mount("", "." + path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def landlock(settings: Settings) -> None:
    """Allow reading the shown paths and writing to /work and devices; deny everything else."""
    version = call("Landlock", LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    known = (1 << ACCESSES[min(version, 5)]) - 1
    network = 3 if version >= 4 else 0  # bind and connect
    scopes = 3 if version >= 6 else 0  # abstract sockets and signals
    packed = struct.pack("<QQQ", known, network, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call("a Landlock ruleset", LANDLOCK_CREATE, packed, ctypes.c_size_t(size), 0)
    rules = dict.fromkeys(settings.shown, READ)
    rules.update(dict.fromkeys(settings.devices, WRITE_DEVICE), **{"/work": known & ~NODES})
    for path, rights in rules.items():
        kept = rights & known & (~0 if os.path.isdir(path) else ON_FILES)
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("<Qi", kept, folder)
        call(f"a Landlock rule for {path}", LANDLOCK_ADD, ruleset, 1, rule, 0)
        os.close(folder)
    call("Landlock", LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def install_filter(rules: bytes) -> None:
    """Install the system call filter irrevocably."""
    code = ctypes.create_string_buffer(rules, len(rules))
    program = struct.pack("<HxxxxxxQ", len(rules) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0), "the system call filter (seccomp)")


def restrict_process(settings: Settings, rules: bytes) -> None:
    """In process 1 of the sandbox: irrevocably drop all access outside the private root."""
    drop_privileges(settings)
    install_filter(rules)
    os.environ.clear()
    os.environ.update(settings.environment)


def drop_privileges(settings: Settings) -> None:
    """Build the root, apply Landlock and drop all capabilities."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "the parent-death signal (prctl)")
    os.setsid()
    build(settings)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs (prctl)")
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # past the last capability of this kernel
    landlock(settings)
    check(
        libc.capset(struct.pack("<Ii", 0x20080522, 0), bytes(24)), "dropping capabilities (capset)"
    )


def enter(settings: Settings, inside: str) -> NoReturn:
    """Drop privileges and run `inside`, which installs the system call filter itself."""
    os.close(settings.info)
    drop_privileges(settings)
    os.environ.clear()
    os.environ.update(settings.environment)
    sys.argv[:] = ["inside", *map(str, (settings.control, settings.rules, settings.entrance))]
    exec(compile(inside, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own file
    os._exit(1)


def main(settings: Settings, inside: str) -> NoReturn:
    """Start the sandbox and wait outside; exit when all of its processes have ended."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "the parent-death signal (prctl)")
    isolate(settings)
    pid = os.fork()
    if not pid:
        enter(settings, inside)
    os.write(settings.info, b'{"child-pid": %d}' % pid)
    given = (settings.control, settings.rules, settings.info, settings.entrance)
    for descriptor in (0, 1, *(number for number in given if number >= 0)):
        os.close(descriptor)
    os.waitpid(pid, 0)
    os._exit(0)


if __name__ == "__main__":
    main(Settings(sys.argv[2:]), sys.argv[1])
