import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from pettingllms.runtime import ports
from pettingllms.runtime.ports import Listener, UnsupportedPlatformError, listeners

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LISTEN = """
import socket, subprocess, sys
near, far, sent = socket.socket(), socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
near.bind(("127.0.0.1", 0))
far.bind(("0.0.0.0", 0))
for each in (near, far):
    each.listen()
again = near.dup()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(near.getsockname()[1], far.getsockname()[1], child.pid, flush=True)
input()
child.communicate(b"x")
"""


def listeners_of(pid: int) -> list[Listener]:
    return [one for one in listeners() if one.pid == pid]


@pytest.fixture
def other() -> Iterator[tuple[int, int, int, int]]:
    """A process that listens near and far: its id, its two ports, its child's id."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    near, far, child = map(int, process.stdout.readline().split())
    yield process.pid, near, far, child
    process.communicate("\n", timeout=20)


def test_both_sockets_of_another_process_are_found(other: tuple[int, int, int, int]) -> None:
    pid, near, far, _ = other
    found = {one.port: one for one in listeners_of(pid)}
    assert set(found) == {near, far}
    assert (found[near].address, found[near].loopback) == ("127.0.0.1", True)
    assert (found[far].address, found[far].loopback) == ("0.0.0.0", False)  # noqa: S104 - read, not bound
    assert found[near].pid == pid
    assert found[near].process.startswith("python")
    assert len(listeners_of(pid)) == 2


def test_a_process_that_has_ended_listens_nowhere() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert listeners_of(process.pid) == []


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize(("host", "loopback"), [("::1", True), ("::", False)])
def test_the_newer_protocol_too(host: str, loopback: bool) -> None:
    with socket.socket(socket.AF_INET6) as here:
        here.bind((host, 0))
        here.listen()
        port = here.getsockname()[1]
        found = [one for one in listeners_of(os.getpid()) if one.port == port]
    assert [(one.address, one.loopback) for one in found] == [(host, loopback)]


@pytest.mark.skipif(sys.byteorder != "little", reason="as such a machine writes them")
@pytest.mark.parametrize(
    ("digits", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("0200A8C0", "192.168.0.2"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ("B80D0120000000000000000001000000", "2001:db8::1"),
    ],
)
def test_addresses_as_the_kernel_writes_them(digits: str, address: str) -> None:
    assert ports._address(digits) == ip_address(address)


def test_a_socket_that_only_talks_does_not_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            talking = client.getsockname()[1]
            found = {one.port for one in listeners_of(os.getpid())}
    assert port in found
    assert talking not in found


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/x/ray/core/src/ray/raylet/raylet", "--port=1"], "raylet"),
        (["ray::Actor.play"], "ray::Actor.play"),
        (["/x/bin/python", "-u", "/x/lib/ray/dashboard/agent.py", "--a"], "ray/dashboard/agent.py"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], "python3 vllm.entrypoints"),
        (["python", "-c", "print('/a/b')"], "python -c"),
        (["python"], "python"),
    ],
)
def test_names_of_processes(monkeypatch, tmp_path, words: list[str], name: str) -> None:
    monkeypatch.setattr(ports, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(b"".join(w.encode() + b"\0" for w in words))
    assert name in ports.process_name(7)
    assert "/a/b" not in ports.process_name(7)


def test_a_process_without_a_command_line_has_its_short_name(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(ports, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes(b"")
    (tmp_path / "7" / "comm").write_text("kthreadd\n")
    assert ports.process_name(7) == "kthreadd"


def test_elsewhere_it_says_that_it_cannot_look(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedPlatformError, match="darwin.*lsof"):
        listeners()
