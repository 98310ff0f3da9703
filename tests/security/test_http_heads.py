"""A request's head costs no memory and no time before it is authenticated, in all servers."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs /proc")

GATEWAY = """
import asyncio
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway import http_headers as heads

heads.HEAD_SECONDS = 2.0

async def run():
    gateway = await Gateway.start(print)
    print(gateway.url.rpartition(":")[2], flush=True)
    await asyncio.Event().wait()

asyncio.run(run())
"""
VERIFIER = """
from pettingllms.gateway import http_headers as heads
from pettingllms.types import Scored
from pettingllms.verifier.serve import serve

heads.HEAD_SECONDS = 2.0
serve(lambda questions: [Scored(0.5) for _ in questions], "k" * 40, 0,
      lambda port: print(port, flush=True))
"""
ROUTER = """
import threading
from pettingllms.gateway import http_headers as heads
from pettingllms.gateway.router import Router

heads.HEAD_SECONDS = 2.0
router = Router()
router.start("127.0.0.1", 0)
print(router.url.rpartition(":")[2], flush=True)
threading.Event().wait()
"""
SERVERS = {"gateway": GATEWAY, "router": ROUTER, "verifier": VERIFIER}
PATHS = {"gateway": "/v1/models", "router": "/v1/models", "verifier": "/health"}
SENT = 32_000_000
"""Bytes of an attack."""
MOST = 8_000_000
"""Bytes by which it may make the server grow."""


class Server:
    def __init__(self, name: str) -> None:
        self.path = PATHS[name]
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVERS[name]], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) * 1024

    def connected(self) -> socket.socket:
        """A connection. The verifier prints its port just before it listens."""
        for _ in range(200):
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=10)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError("the server never listened")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(request.param)
    assert status_of(made, head(made)) == 401, "it answers, and asks for a key"
    yield made
    made.stop()


def head(server: Server, *lines: str, path: str = "") -> bytes:
    first = f"GET {path or server.path} HTTP/1.1\r\nhost: x\r\n"
    return (first + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


def answered(connection: socket.socket) -> int:
    """The status of the next answer; 0 if the connection was closed without one."""
    found = b""
    try:
        while b"\r\n\r\n" not in found and (part := connection.recv(4096)):
            found += part
        answer, _, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
        left = int(length[1]) - len(body) if length else 0
        while left > 0 and (part := connection.recv(left)):  # else the next answer begins with it
            left -= len(part)
    except ConnectionError:
        pass
    except TimeoutError:
        return -1
    line = found.split(b"\r\n")[0].split()
    return int(line[1]) if len(line) > 1 else 0


def status_of(server: Server, sent: bytes) -> int:
    with server.connected() as connection:
        connection.sendall(sent)
        return answered(connection)


PREFIXES = {
    "blank lines": (b"", b"\r\n" * 32768),
    "url": (b"GET /", b"a" * 65536),
    "query": (b"GET /v1/models?", b"a=b&" * 16384),
    "header name": (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x" * 65536),
    "header value": (b"GET / HTTP/1.1\r\nhost: x\r\nx-a: ", b"a" * 65536),
    "cookie": (b"GET / HTTP/1.1\r\nhost: x\r\ncookie: ", b"a=b; " * 13000),
    "key": (b"GET / HTTP/1.1\r\nauthorization: Bearer ", b"a" * 65536),
    "headers": (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x-a: b\r\n" * 8192),
    "trailer": (
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-a: ",
        b"a" * 65536,
    ),
}


@pytest.mark.parametrize("kind", PREFIXES)
def test_an_endless_head_is_not_kept(server: Server, kind: str) -> None:
    begin, more = PREFIXES[kind]
    before, sent = server.peak_bytes(), len(begin)
    with server.connected() as connection:
        try:
            connection.sendall(begin)
            while sent < SENT:
                connection.sendall(more)
                sent += len(more)
        except ConnectionError:
            pass
        grown = server.peak_bytes() - before
        assert grown < MOST, f"{sent:,} bytes were sent, and the server grew by {grown:,}"
        assert sent < SENT, "the server reads on"
        status = answered(connection)
    assert status in ((0, 401, 404) if kind == "trailer" else (0, 414, 431))


def test_long_urls_and_headers_are_rejected_by_name(server: Server) -> None:
    ask = {
        414: head(server, path="/v1/models?" + "a" * 10_000),
        431: head(server, "x-a: " + "a" * 40_000),
    }
    for status, sent in ask.items():
        assert status_of(server, sent) == status
    many = head(server, *(f"x-{at}: a" for at in range(200)))
    assert status_of(server, many) == 431
    assert status_of(server, head(server, "x-a: " + "a" * 20_000)) == 401, "long, not too long"
    assert status_of(server, head(server, *(f"x-{at}: a" for at in range(80)))) == 401


def test_a_later_request_of_a_connection_is_bounded_too(server: Server) -> None:
    with server.connected() as connection:
        connection.sendall(head(server))
        assert answered(connection) == 401
        connection.sendall(head(server, "x-a: " + "a" * 40_000))
        assert answered(connection) == 431


def test_a_head_that_never_ends_is_ended(server: Server) -> None:
    start = time.monotonic()
    with server.connected() as silent, server.connected() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n")
        while time.monotonic() - start < 20:
            try:
                slow.sendall(b"x-a: b\r\n")
            except ConnectionError:
                break
            time.sleep(0.2)
        assert time.monotonic() - start < 20
        assert answered(silent) in (0, 408)
