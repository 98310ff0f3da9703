"""The seccomp filter that blocks system calls of sandboxed programs, as bytes for the kernel.

It blocks calls that create namespaces, inspect other processes, or reach kernel code that has had
vulnerabilities and that such programs do not need. A blocked call fails with an error, so that a C
library can fall back.

The filter is a deny list, because programs can be of any kind, such as compilers and simulators. It
stays safe on newer kernels: it also blocks all calls with numbers above the last known one, which
includes the x32 interface. The kernel kills a process that makes calls of another architecture.

With `logged`, the kernel reports blocked calls to the listener of the filter (see `blocked_calls`),
which counts them and answers with an error. If the listener is closed, all of them fail.
"""

import platform
import struct
from collections.abc import Iterable
from errno import ENOSYS, EPERM
from typing import NamedTuple

from pettingllms.errors import SandboxError


class Call(NamedTuple):
    """The number of a system call on each architecture; None where it does not exist."""

    x86_64: int | None
    aarch64: int | None


def _same(number: int) -> Call:
    return Call(number, number)


BLOCKED = {
    # other processes
    "ptrace": Call(101, 117), "process_vm_readv": Call(310, 270),
    "process_vm_writev": Call(311, 271), "process_madvise": _same(440), "pidfd_getfd": _same(438),
    "kcmp": Call(312, 272), "migrate_pages": Call(256, 238), "move_pages": Call(279, 239),
    # namespaces and mounts
    "unshare": Call(272, 97), "setns": Call(308, 268), "mount": Call(165, 40),
    "umount2": Call(166, 39), "pivot_root": Call(155, 41), "chroot": Call(161, 51),
    "open_tree": _same(428), "move_mount": _same(429), "fsopen": _same(430),
    "fsconfig": _same(431), "fsmount": _same(432), "fspick": _same(433),
    "mount_setattr": _same(442), "statmount": _same(457), "listmount": _same(458),
    "name_to_handle_at": Call(303, 264), "open_by_handle_at": Call(304, 265),
    # network
    "socket": Call(41, 198), "connect": Call(42, 203), "bind": Call(49, 200),
    "listen": Call(50, 201), "accept": Call(43, 202), "accept4": Call(288, 242),
    "setsockopt": Call(54, 208),
    # observing other users of the same files
    "inotify_init": Call(253, None), "inotify_init1": Call(294, 26),
    "inotify_add_watch": Call(254, 27), "flock": Call(73, 32),
    # kernel code with past vulnerabilities
    "bpf": Call(321, 280), "perf_event_open": Call(298, 241), "userfaultfd": Call(323, 282),
    "io_uring_setup": _same(425), "io_uring_enter": _same(426), "io_uring_register": _same(427),
    "io_setup": Call(206, 0), "io_submit": Call(209, 2), "add_key": Call(248, 217),
    "request_key": Call(249, 218), "keyctl": Call(250, 219), "fanotify_init": Call(300, 262),
    "fanotify_mark": Call(301, 263), "vmsplice": Call(278, 75), "splice": Call(275, 76),
    "tee": Call(276, 77), "remap_file_pages": Call(216, 234), "mbind": Call(237, 235),
    "set_mempolicy": Call(238, 237), "set_mempolicy_home_node": _same(450),
    "personality": Call(135, 92), "modify_ldt": Call(154, None), "uselib": Call(134, None),
    "lookup_dcookie": Call(212, 18), "nfsservctl": Call(180, 42), "vserver": Call(236, None),
    # memory that no limit counts
    "memfd_create": Call(319, 279), "memfd_secret": _same(447), "shmget": Call(29, 194),
    "shmctl": Call(31, 195), "shmat": Call(30, 196), "msgget": Call(68, 186),
    "semget": Call(64, 190), "mq_open": Call(240, 180),
    # the machine
    "reboot": Call(169, 142), "kexec_load": Call(246, 104), "kexec_file_load": Call(320, 294),
    "init_module": Call(175, 105), "finit_module": Call(313, 273), "delete_module": Call(176, 106),
    "create_module": Call(174, None), "swapon": Call(167, 224), "swapoff": Call(168, 225),
    "settimeofday": Call(164, 170), "clock_settime": Call(227, 112),
    "clock_adjtime": Call(305, 266), "adjtimex": Call(159, 171), "sethostname": Call(170, 161),
    "setdomainname": Call(171, 162), "acct": Call(163, 89), "quotactl": Call(179, 60),
    "quotactl_fd": _same(443), "syslog": Call(103, 116), "vhangup": Call(153, 58),
    "iopl": Call(172, None), "ioperm": Call(173, None),
}  # fmt: skip
"""Blocked calls by name, grouped by reason."""

CLONE, CLONE3 = Call(56, 220), _same(435)
PROCESS_CALLS = {
    "clone": CLONE, "fork": Call(57, None), "vfork": Call(58, None), "execve": Call(59, 221),
    "execveat": Call(322, 281),
}  # fmt: skip
"""Calls that create a process or thread, or execute another program."""
SOCKETPAIR, IOCTL, PRLIMIT = Call(53, 199), Call(16, 29), Call(302, 261)
FCNTL, MMAP = Call(72, 25), Call(9, 222)
SENDTO, RECVFROM, RECVMSG, RECVMMSG = Call(44, 206), Call(45, 207), Call(47, 212), Call(299, 243)
PASSING = {"sendmsg": Call(46, 211), "sendmmsg": Call(307, 269)}
"""Calls that can pass open files (SCM_RIGHTS). The listener leaves the sandbox through one of
them, so a second filter, installed afterward, blocks them."""
SPECIAL = {
    "clone": CLONE, "clone3": CLONE3, "socketpair": SOCKETPAIR, "ioctl": IOCTL,
    "prlimit64": PRLIMIT, "fcntl": FCNTL, "mmap": MMAP, "sendto": SENDTO, "recvfrom": RECVFROM,
    "recvmsg": RECVMSG, "recvmmsg": RECVMMSG,
}  # fmt: skip
"""Calls that are blocked depending on their arguments."""
FIRST_UNKNOWN = 463
"""First number above the system calls of Linux 6.12."""
NAMESPACES = 0x7E020000
"""The flags of `clone` that create a namespace."""
TERMINAL = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which inject input into a terminal."""
FILE_COMMANDS = {
    "F_GETLK": 5, "F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38,  # locks of others
    "F_SETLEASE": 1024, "F_NOTIFY": 1026,  # what others do with a file
    "F_SETPIPE_SZ": 1031,  # memory that no limit counts
}  # fmt: skip
"""Blocked commands of `fcntl`. POSIX locks (F_SETLK) stay allowed, because SQLite needs them."""
MAX_SHARED_BYTES = 1 << 20
"""Maximum size of one segment of shared anonymous memory. A segment can outlive its mapping, so
only the number of segments is visible from outside; this bound limits their total size."""
SHARED_ANONYMOUS = 0x21
OUT_OF_BAND = 1
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Architecture numbers that the kernel passes to a filter."""

ALLOW, KILL_PROCESS, ERRNO, NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
LOAD, RETURN = 0x20, 0x06
IF_EQUAL, IF_ABOVE, IF_AT_LEAST, IF_ANY_BIT, AND = 0x15, 0x25, 0x35, 0x45, 0x54
NUMBER, MACHINE = 0, 4


def _argument(index: int) -> int:
    """Offset of the low half of an argument; all checked values fit in it."""
    return 16 + 8 * index


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _number(call: Call, machine: str) -> int | None:
    found: int | None = getattr(call, machine)
    return found


def _known(machine: str) -> str:
    name = machine or platform.machine()
    if name not in MACHINES:
        known = " and ".join(MACHINES)
        raise SandboxError(f"no system call filter for architecture '{name}'; supported: {known}")
    return name


def call_name(number: int, machine: str = "") -> str:
    """The name of a blocked call in logs and metrics."""
    name = _known(machine)
    for known, call in (BLOCKED | PASSING | SPECIAL).items():
        if _number(call, name) == number:
            return known
    return f"call_{number}"


def error_of(number: int) -> int:
    """The error code that a blocked call returns."""
    return ENOSYS if number >= FIRST_UNKNOWN else EPERM


class _Writer:
    """Writes the instructions of one filter."""

    def __init__(self, machine: str, logged: bool) -> None:
        self._machine = machine
        self._logged = logged

    def block(self, error: int = EPERM) -> bytes:
        return _step(RETURN, NOTIFY if self._logged else ERRNO | error)

    def when(self, call: Call, *then: bytes) -> bytes:
        """Instructions for one call. They end with a return, so the number stays loaded."""
        number, steps = _number(call, self._machine), b"".join(then)
        if number is None:
            return b""
        return _step(IF_EQUAL, number, 0, len(steps) // 8) + steps

    def beginning(self) -> bytes:
        return b"".join((
            _step(LOAD, MACHINE),
            _step(IF_EQUAL, MACHINES[self._machine], 1, 0),
            _step(RETURN, KILL_PROCESS),
            _step(LOAD, NUMBER),
        ))  # fmt: skip

    def unless_any(self, argument: int, bits: int) -> tuple[bytes, ...]:
        """Block a call if an argument has any of these bits set."""
        return (
            _step(LOAD, _argument(argument)),
            _step(IF_ANY_BIT, bits, 0, 1) + self.block(),
            _step(RETURN, ALLOW),
        )

    def unless_one_of(self, argument: int, values: Iterable[int]) -> tuple[bytes, ...]:
        """Block a call if an argument is one of these values."""
        return (
            _step(LOAD, _argument(argument)),
            *(_step(IF_EQUAL, value, 0, 1) + self.block() for value in values),
            _step(RETURN, ALLOW),
        )


def seccomp_filter(machine: str = "", *, alone: bool = False, logged: bool = False) -> bytes:
    """The filter for this or the given architecture. `alone` also blocks process creation."""
    write = _Writer(_known(machine), logged)
    allow = _step(RETURN, ALLOW)
    blocked = [*BLOCKED.values(), *(PROCESS_CALLS.values() if alone else ())]
    if not logged:
        blocked += PASSING.values()
    return b"".join(
        [
            write.beginning(),
            _step(IF_AT_LEAST, FIRST_UNKNOWN, 0, 1) + write.block(ENOSYS),
            *(write.when(call, write.block()) for call in blocked),
            # its flags cannot be inspected; C libraries fall back to `clone`, so it is not logged
            write.when(CLONE3, _step(RETURN, ERRNO | ENOSYS)),
            write.when(CLONE, *write.unless_any(0, NAMESPACES)),
            write.when(
                SOCKETPAIR,  # two connected ends of a Unix stream, which asyncio needs
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 1, 1, 0) + write.block(),
                _step(LOAD, _argument(1)),
                _step(AND, 0xF),
                _step(IF_EQUAL, 1, 1, 0) + write.block(),
                allow,
            ),
            write.when(SENDTO, *write.unless_any(3, OUT_OF_BAND)),
            write.when(RECVFROM, *write.unless_any(3, OUT_OF_BAND)),
            write.when(RECVMSG, *write.unless_any(2, OUT_OF_BAND)),
            write.when(RECVMMSG, *write.unless_any(3, OUT_OF_BAND)),
            write.when(IOCTL, *write.unless_one_of(1, TERMINAL)),
            write.when(FCNTL, *write.unless_one_of(1, FILE_COMMANDS.values())),
            write.when(
                PRLIMIT,  # only on the calling process
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 0, 1, 0) + write.block(),
                allow,
            ),
            write.when(
                MMAP,  # shared anonymous memory only in small segments
                _step(LOAD, _argument(3)),
                _step(AND, SHARED_ANONYMOUS),
                _step(IF_EQUAL, SHARED_ANONYMOUS, 1, 0) + allow,
                _step(LOAD, _argument(1) + 4),
                _step(IF_EQUAL, 0, 1, 0) + write.block(),
                _step(LOAD, _argument(1)),
                _step(IF_ABOVE, MAX_SHARED_BYTES, 0, 1) + write.block(),
                allow,
            ),
            allow,
        ]
    )


def passing_filter(machine: str = "") -> bytes:
    """Blocks the calls that a logged filter leaves open."""
    write = _Writer(_known(machine), logged=False)
    blocked = (write.when(call, write.block()) for call in PASSING.values())
    return b"".join((write.beginning(), *blocked, _step(RETURN, ALLOW)))
