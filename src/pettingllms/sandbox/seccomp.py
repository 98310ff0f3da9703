"""The system calls that a sandboxed program may not make, as the bytes that the kernel reads.

Namespaces hide things; this takes away the calls by which a program could ask the kernel for new
ones, look into other processes, or reach code of the kernel that a puzzle solver never needs and
that has been broken before. What is refused fails with an error, so that a C library can fall back.

The list names what is refused, since programs here are of any kind (compilers, simulators). It does
not age into a hole: numbers above the last call that it was made with are refused as well, which
also refuses every call of the x32 interface. Calls of another architecture end the process.

With `logged`, the kernel hands refused calls to whoever holds the listener of the filter (see
`refusals`), which counts them and answers with an error. A closed listener refuses them all.
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


REFUSED = {
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
    # what other sandboxes and the machine do with the same files
    "inotify_init": Call(253, None), "inotify_init1": Call(294, 26),
    "inotify_add_watch": Call(254, 27), "flock": Call(73, 32),
    # parts of the kernel with a history
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
"""By name, in the groups that say why."""

CLONE, CLONE3 = Call(56, 220), _same(435)
BEGINNINGS = {
    "clone": CLONE, "fork": Call(57, None), "vfork": Call(58, None), "execve": Call(59, 221),
    "execveat": Call(322, 281),
}  # fmt: skip
"""By which a process begins another, or a thread, or becomes another program."""
SOCKETPAIR, IOCTL, PRLIMIT = Call(53, 199), Call(16, 29), Call(302, 261)
FCNTL, MMAP = Call(72, 25), Call(9, 222)
SENDTO, RECVFROM, RECVMSG, RECVMMSG = Call(44, 206), Call(45, 207), Call(47, 212), Call(299, 243)
PASSING = {"sendmsg": Call(46, 211), "sendmmsg": Call(307, 269)}
"""They can pass open files (SCM_RIGHTS). The listener itself leaves the sandbox this way, so a
second filter refuses them, which is in force after that."""
SPECIAL = {
    "clone": CLONE, "clone3": CLONE3, "socketpair": SOCKETPAIR, "ioctl": IOCTL,
    "prlimit64": PRLIMIT, "fcntl": FCNTL, "mmap": MMAP, "sendto": SENDTO, "recvfrom": RECVFROM,
    "recvmsg": RECVMSG, "recvmmsg": RECVMMSG,
}  # fmt: skip
"""Calls whose arguments decide."""
FIRST_UNKNOWN = 463
"""The calls of kernels up to 6.12, the last that any program can count on, have smaller numbers."""
NAMESPACES = 0x7E020000
"""The flags of `clone` that ask for a new namespace."""
TERMINAL = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal."""
FILE_COMMANDS = {
    "F_GETLK": 5, "F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38,  # locks of others
    "F_SETLEASE": 1024, "F_NOTIFY": 1026,  # what others do with a file
    "F_SETPIPE_SZ": 1031,  # memory that no limit counts
}  # fmt: skip
"""Of `fcntl`. Plain locks (F_SETLK) remain, since SQLite needs them on its own files."""
MAX_SHARED_BYTES = 1 << 20
"""Of one piece of shared anonymous memory. It can outlive its mapping, so only the number of pieces
is seen from outside; with a bound on each, their number bounds the whole."""
SHARED_ANONYMOUS = 0x21
OUT_OF_BAND = 1
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel names them to a filter."""

ALLOW, KILL_PROCESS, ERRNO, NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
LOAD, RETURN = 0x20, 0x06
IF_EQUAL, IF_ABOVE, IF_AT_LEAST, IF_ANY_BIT, AND = 0x15, 0x25, 0x35, 0x45, 0x54
NUMBER, MACHINE = 0, 4


def _argument(index: int) -> int:
    """Where the low half of an argument is: all that are looked at here fit in it."""
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
        raise SandboxError(f"there is no system call filter for {name}, only for {known}")
    return name


def call_name(number: int, machine: str = "") -> str:
    """The name of a call that the filter refuses, as logs and metrics have it."""
    name = _known(machine)
    for known, call in (REFUSED | PASSING | SPECIAL).items():
        if _number(call, name) == number:
            return known
    return f"call_{number}"


def error_of(number: int) -> int:
    """The error that a refused call fails with."""
    return ENOSYS if number >= FIRST_UNKNOWN else EPERM


class _Writer:
    """Writes the steps of one filter."""

    def __init__(self, machine: str, logged: bool) -> None:
        self._machine = machine
        self._logged = logged

    def refuse(self, error: int = EPERM) -> bytes:
        return _step(RETURN, NOTIFY if self._logged else ERRNO | error)

    def when(self, call: Call, *then: bytes) -> bytes:
        """Steps for one call. They end with a verdict, so the number need not be read again."""
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
        """Refuse a call if an argument has any of these bits."""
        return (
            _step(LOAD, _argument(argument)),
            _step(IF_ANY_BIT, bits, 0, 1) + self.refuse(),
            _step(RETURN, ALLOW),
        )

    def unless_one_of(self, argument: int, values: Iterable[int]) -> tuple[bytes, ...]:
        """Refuse a call if an argument is one of these values."""
        return (
            _step(LOAD, _argument(argument)),
            *(_step(IF_EQUAL, value, 0, 1) + self.refuse() for value in values),
            _step(RETURN, ALLOW),
        )


def seccomp_filter(machine: str = "", *, alone: bool = False, logged: bool = False) -> bytes:
    """The filter for this machine, or for the named one; with `alone`, no new processes either."""
    write = _Writer(_known(machine), logged)
    allow = _step(RETURN, ALLOW)
    refused = [*REFUSED.values(), *(BEGINNINGS.values() if alone else ())]
    if not logged:
        refused += PASSING.values()
    return b"".join(
        [
            write.beginning(),
            _step(IF_AT_LEAST, FIRST_UNKNOWN, 0, 1) + write.refuse(ENOSYS),
            *(write.when(call, write.refuse()) for call in refused),
            # its flags are out of reach; C libraries try it and then use `clone`, so it is no news
            write.when(CLONE3, _step(RETURN, ERRNO | ENOSYS)),
            write.when(CLONE, *write.unless_any(0, NAMESPACES)),
            write.when(
                SOCKETPAIR,  # two connected ends of a Unix stream, which asyncio needs
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 1, 1, 0) + write.refuse(),
                _step(LOAD, _argument(1)),
                _step(AND, 0xF),
                _step(IF_EQUAL, 1, 1, 0) + write.refuse(),
                allow,
            ),
            write.when(SENDTO, *write.unless_any(3, OUT_OF_BAND)),
            write.when(RECVFROM, *write.unless_any(3, OUT_OF_BAND)),
            write.when(RECVMSG, *write.unless_any(2, OUT_OF_BAND)),
            write.when(RECVMMSG, *write.unless_any(3, OUT_OF_BAND)),
            write.when(IOCTL, *write.unless_one_of(1, TERMINAL)),
            write.when(FCNTL, *write.unless_one_of(1, FILE_COMMANDS.values())),
            write.when(
                PRLIMIT,  # of itself alone
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 0, 1, 0) + write.refuse(),
                allow,
            ),
            write.when(
                MMAP,  # shared anonymous memory in small pieces alone
                _step(LOAD, _argument(3)),
                _step(AND, SHARED_ANONYMOUS),
                _step(IF_EQUAL, SHARED_ANONYMOUS, 1, 0) + allow,
                _step(LOAD, _argument(1) + 4),
                _step(IF_EQUAL, 0, 1, 0) + write.refuse(),
                _step(LOAD, _argument(1)),
                _step(IF_ABOVE, MAX_SHARED_BYTES, 0, 1) + write.refuse(),
                allow,
            ),
            allow,
        ]
    )


def passing_filter(machine: str = "") -> bytes:
    """Refuses what a logged filter leaves open."""
    write = _Writer(_known(machine), logged=False)
    refused = (write.when(call, write.refuse()) for call in PASSING.values())
    return b"".join((write.beginning(), *refused, _step(RETURN, ALLOW)))
