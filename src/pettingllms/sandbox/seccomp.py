"""The system calls that a sandboxed program may not make, as the bytes that the kernel reads.

Namespaces hide things; this takes away the calls by which a program could ask the kernel for new
ones, look into other processes, or reach code of the kernel that a puzzle solver never needs and
that has been broken before. What is refused fails with an error, so that a C library can fall back.

The list names what is refused, since programs here are of any kind (compilers, simulators). It does
not age into a hole: numbers above the last call that it was made with are refused as well, which
also refuses every call of the x32 interface. Calls of another architecture end the process.
"""

import platform
import struct
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
FIRST_UNKNOWN = 463
"""The calls of kernels up to 6.12, the last that any program can count on, have smaller numbers."""
NAMESPACES = 0x7E020000
"""The flags of `clone` that ask for a new namespace."""
TERMINAL = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type into a terminal."""
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel names them to a filter."""

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, RETURN = 0x20, 0x06
IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, AND = 0x15, 0x35, 0x45, 0x54
NUMBER, MACHINE = 0, 4


def _argument(index: int) -> int:
    """Where the low half of an argument is: all that are looked at here fit in it."""
    return 16 + 8 * index


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(error: int = EPERM) -> bytes:
    return _step(RETURN, ERRNO | error)


def seccomp_filter(machine: str = "", *, alone: bool = False) -> bytes:
    """The filter for this machine, or for the named one; with `alone`, no new processes either."""
    name = machine or platform.machine()
    if name not in MACHINES:
        known = " and ".join(MACHINES)
        raise SandboxError(f"there is no system call filter for {name}, only for {known}")

    def number(call: Call) -> int | None:
        found: int | None = getattr(call, name)
        return found

    def when(call: Call, *then: bytes) -> bytes:
        """Steps for one call. They end with a verdict, so the number need not be read again."""
        steps = b"".join(then)
        if number(call) is None:
            return b""
        return _step(IF_EQUAL, number(call) or 0, 0, len(steps) // 8) + steps

    allow = _step(RETURN, ALLOW)
    return b"".join(
        [
            _step(LOAD, MACHINE),
            _step(IF_EQUAL, MACHINES[name], 1, 0),
            _step(RETURN, KILL_PROCESS),
            _step(LOAD, NUMBER),
            _step(IF_AT_LEAST, FIRST_UNKNOWN, 0, 1) + _refuse(ENOSYS),
            *(when(call, _refuse()) for call in REFUSED.values()),
            *(when(call, _refuse()) for call in (BEGINNINGS.values() if alone else ())),
            when(CLONE3, _refuse(ENOSYS)),  # its flags are out of reach; C libraries use `clone`
            when(
                CLONE,
                _step(LOAD, _argument(0)),
                _step(IF_ANY_BIT, NAMESPACES, 0, 1) + _refuse(),
                allow,
            ),
            when(
                SOCKETPAIR,  # two connected ends of a Unix stream, which asyncio needs
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 1, 1, 0) + _refuse(),
                _step(LOAD, _argument(1)),
                _step(AND, 0xF),
                _step(IF_EQUAL, 1, 1, 0) + _refuse(),
                allow,
            ),
            when(
                IOCTL,
                _step(LOAD, _argument(1)),
                *(_step(IF_EQUAL, request, 0, 1) + _refuse() for request in TERMINAL),
                allow,
            ),
            when(
                PRLIMIT,  # of itself alone
                _step(LOAD, _argument(0)),
                _step(IF_EQUAL, 0, 1, 0) + _refuse(),
                allow,
            ),
            allow,
        ]
    )
