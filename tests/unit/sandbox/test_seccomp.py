import re
import struct
from errno import ENOSYS, EPERM
from pathlib import Path

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox.seccomp import (
    BLOCKED,
    CLONE,
    CLONE3,
    FCNTL,
    FIRST_UNKNOWN,
    IOCTL,
    MACHINES,
    MMAP,
    PASSING,
    PRLIMIT,
    RECVFROM,
    RECVMSG,
    SENDTO,
    SOCKETPAIR,
    SPECIAL,
    call_name,
    passing_filter,
    seccomp_filter,
)

ALLOWED = 0x7FFF0000
KILLED = 0x80000000
HANDED_OVER = 0x7FC00000
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"__NR_(\w+) (\d+)"),
    "aarch64": ("/usr/include/asm-generic/unistd.h", r"__NR(?:3264)?_(\w+) (\d+)"),
}


def decide(
    machine: str,
    number: int,
    *arguments: int,
    seen_as: int | None = None,
    code: bytes | None = None,
) -> int:
    """Run the filter as the kernel would."""
    code = code or seccomp_filter(machine)
    steps = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack(
        "<IIQ6Q", number, MACHINES[machine] if seen_as is None else seen_as, 0, *given
    )
    at = value = 0
    while True:
        operation, if_true, if_false, operand = steps[at]
        at += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif operation == 0x54:
            value &= operand
        else:
            tests = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}
            tests[0x25] = value > operand
            at += if_true if tests[operation] else if_false


def refused(error: int = EPERM) -> int:
    return 0x00050000 | error


@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_are_blocked_and_ordinary_ones_are_not(machine: str) -> None:
    numbers = {getattr(call, machine) for call in (BLOCKED | PASSING).values()} - {None}
    assert {decide(machine, number) for number in numbers} == {refused()}
    special = {getattr(call, machine) for call in SPECIAL.values()}
    others = set(range(FIRST_UNKNOWN)) - numbers - special
    assert {decide(machine, number) for number in others} == {ALLOWED}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    path, pattern = HEADERS[machine]
    if not Path(path).exists():
        pytest.skip("the kernel's headers are not installed")
    known = {name: int(number) for name, number in re.findall(pattern, Path(path).read_text())}
    ours = {**BLOCKED, **PASSING, **SPECIAL}
    found = {name: getattr(call, machine) for name, call in ours.items()}
    checked = {name: number for name, number in found.items() if name in known}
    assert checked == {name: known[name] for name in checked}
    assert len(checked) > 80


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_where_a_call_has_good_uses(machine: str) -> None:
    def ask(call: object, *arguments: int) -> int:
        return decide(machine, getattr(call, machine), *arguments)

    assert ask(CLONE, 0x1200011) == ALLOWED  # fork
    assert ask(CLONE, 0x3D0F00) == ALLOWED  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(CLONE, flag | 17) == refused()
    assert ask(CLONE3) == refused(ENOSYS)
    assert ask(SOCKETPAIR, 1, 1 | 0o2000000) == ALLOWED
    assert ask(SOCKETPAIR, 1, 2) == refused()
    assert ask(SOCKETPAIR, 2, 1) == refused()
    assert ask(IOCTL, 0, 0x5401) == ALLOWED
    assert ask(IOCTL, 0, 0x5412) == refused()
    assert ask(IOCTL, 0, 0xFFFFFFFF00005412) == refused()
    assert ask(PRLIMIT, 0) == ALLOWED
    assert ask(PRLIMIT, 1) == refused()
    assert ask(SENDTO, 3, 0, 0, 0x4000) == ask(RECVFROM, 3, 0, 0, 0x40) == ALLOWED
    assert ask(SENDTO, 3, 0, 0, 0x4001) == ask(RECVFROM, 3, 0, 0, 1) == refused()
    assert ask(RECVMSG, 3, 0, 1) == refused()
    assert ask(FCNTL, 3, 6) == ALLOWED  # F_SETLK, which SQLite needs
    for command in (5, 36, 37, 38, 1024, 1026, 1031):
        assert ask(FCNTL, 3, command) == refused()
    assert ask(MMAP, 0, 1 << 30, 3, 0x22) == ALLOWED  # private
    assert ask(MMAP, 0, 1 << 30, 3, 0x01) == ALLOWED  # of a file
    assert ask(MMAP, 0, 1 << 20, 3, 0x21) == ALLOWED
    assert ask(MMAP, 0, (1 << 20) + 1, 3, 0x21) == refused()
    assert ask(MMAP, 0, 1 << 32, 3, 0x21) == refused()


@pytest.mark.parametrize("machine", MACHINES)
def test_logged_filter_reports_every_blocked_call_but_those_of_libraries(machine: str) -> None:
    logged, passing = seccomp_filter(machine, logged=True), passing_filter(machine)
    passed = {getattr(call, machine) for call in PASSING.values()}
    for number in range(FIRST_UNKNOWN + 5):
        plain = decide(machine, number)
        both = {decide(machine, number, code=code) for code in (logged, passing)}
        if plain == ALLOWED:
            assert both == {ALLOWED}
        elif number == getattr(CLONE3, machine):
            assert both == {ALLOWED, refused(ENOSYS)}
        else:
            assert both == {ALLOWED, refused() if number in passed else HANDED_OVER}


def test_call_name_knows_blocked_calls_and_shows_the_number_of_others() -> None:
    assert call_name(101, "x86_64") == "ptrace"
    assert call_name(117, "aarch64") == "ptrace"
    assert call_name(9999, "x86_64") == "call_9999"


def test_other_interfaces_of_the_kernel_are_closed() -> None:
    assert decide("x86_64", 39 | 0x40000000) == refused(ENOSYS)  # x32
    assert decide("x86_64", FIRST_UNKNOWN) == refused(ENOSYS)
    assert decide("x86_64", 20, seen_as=0x40000003) == KILLED  # 32 bits
    assert decide("aarch64", 20, seen_as=0x40000028) == KILLED


def test_an_unknown_architecture_is_rejected() -> None:
    with pytest.raises(SandboxError, match="no system call filter for architecture 'mips'"):
        seccomp_filter("mips")
