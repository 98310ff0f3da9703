"""Listening TCP ports of this user's processes, read from /proc on Linux."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from pettingllms.errors import PettingError

PROC = Path("/proc")
LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""
GONE = (FileNotFoundError, ProcessLookupError)
"""Errors of reading about a process that has ended."""


class UnsupportedPlatformError(PettingError):
    """A platform on which listening ports cannot be read."""


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """A process that listens for TCP connections at an address."""

    pid: int
    process: str
    address: str
    port: int
    loopback: bool
    """Whether only this machine can reach it."""


def listeners() -> list[Listener]:
    """All listeners of this user's processes."""
    _check_system()
    found: list[Listener] = []
    sockets = _listening()
    for pid in _pids():
        with suppress(*GONE, PermissionError):
            if (PROC / str(pid)).stat().st_uid == os.getuid():
                found += _listeners_of(pid, sockets)
    return sorted(found)


def process_name(pid: int) -> str:
    """The title that a process gave itself, its program, or the script that its Python runs."""
    words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    name = words[0].rpartition("/")[2] if words[0].startswith("/") else words[0]
    if name.startswith("python"):
        first = next((word for word in words[1:] if word == "-c" or word[:1] not in ("", "-")), "")
        name = f"{name} {'/'.join(first.split('/')[-4:])}".rstrip()
    return name[:80] or (PROC / str(pid) / "comm").read_text(errors="replace").strip()


def _check_system() -> None:
    if sys.platform != "linux":
        raise UnsupportedPlatformError(
            f"cannot list listening ports on {sys.platform}: it has no /proc; use "
            "`lsof -iTCP -sTCP:LISTEN`"
        )


def _pids() -> Iterator[int]:
    return (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())


def _listening() -> dict[int, tuple[IPv4Address | IPv6Address, int]]:
    """Address and port of every listening socket, by inode."""
    found: dict[int, tuple[IPv4Address | IPv6Address, int]] = {}
    for table in (PROC / "net" / "tcp", PROC / "net" / "tcp6"):
        with suppress(FileNotFoundError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN:
                    host, port = fields[1].split(":")
                    found[int(fields[9])] = (_address(host), int(port, 16))
    return found


def _address(digits: str) -> IPv4Address | IPv6Address:
    """An address that the kernel wrote as words of 32 bits, each in the machine's byte order."""
    raw = bytes.fromhex(digits)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    if len(raw) == 4:
        return IPv4Address(raw)
    address = IPv6Address(raw)
    return address.ipv4_mapped or address


def _listeners_of(
    pid: int, sockets: dict[int, tuple[IPv4Address | IPv6Address, int]]
) -> Iterator[Listener]:
    seen: set[int] = set()
    for entry in (PROC / str(pid) / "fd").iterdir():
        with suppress(FileNotFoundError):
            kind, _, inode = str(entry.readlink()).strip("]").partition(":[")
            if kind == "socket" and int(inode) not in seen and int(inode) in sockets:
                seen.add(int(inode))
                address, port = sockets[int(inode)]
                yield Listener(pid, process_name(pid), str(address), port, address.is_loopback)
