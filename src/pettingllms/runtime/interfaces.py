"""The network interfaces of this machine, and which of them has an address.

gloo and NCCL take the name of an interface and listen on its address only.
"""

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from pettingllms.errors import ClusterError

SIOCGIFCONF = 0x8912
ENTRY = 40
"""Bytes of a `struct ifreq` on 64-bit Linux: a name of 16, and a socket address."""
MAX_ENTRIES = 1024
IPV6 = Path("/proc/net/if_inet6")


def addresses() -> Iterator[tuple[str, str]]:
    """Each address of this machine with the name of its interface."""
    buffer = array.array("B", bytes(ENTRY * MAX_ENTRIES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        (length,) = struct.unpack_from("i", fcntl.ioctl(asked, SIOCGIFCONF, request))
    found = buffer.tobytes()[:length]
    for at in range(0, length, ENTRY):
        name = found[at : at + 16].split(b"\0", 1)[0].decode()
        yield socket.inet_ntoa(found[at + 20 : at + 24]), name
    if IPV6.is_file():
        for line in IPV6.read_text(encoding="utf-8").splitlines():
            digits, *_, name = line.split()
            yield str(ipaddress.IPv6Address(int(digits, 16))), name


def interface_of(address: str) -> str:
    """The interface that has an address; ClusterError if there is none."""
    known = list(addresses())
    for one, name in known:
        if ipaddress.ip_address(one) == ipaddress.ip_address(address):
            return name
    here = ", ".join(f"{one} ({name})" for one, name in known)
    raise ClusterError(
        f"Ray knows this machine ({socket.gethostname()}) by the address {address}, but its "
        f"interfaces have {here}; pass one of these to `ray start --node-ip-address`"
    )


def address_towards(host: str) -> str:
    """The address of this machine from which it reaches a host. Nothing is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((host, 1))
        found: str = asked.getsockname()[0]
    return found
