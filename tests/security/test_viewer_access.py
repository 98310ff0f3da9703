"""The viewer's key is on no command line, and a client without it learns and breaks nothing."""

import http.client
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import unquote, urlsplit

import pytest

from pettingllms.cli import view as pages
from pettingllms.viewer import server as view_server
from pettingllms.viewer.server import ViewServer

FAKE_BROWSER = """#!{python}
import sys, time
with open({log!r}, "w") as file:
    file.write("\\n".join(sys.argv[1:]))
time.sleep(30)
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewServer]:
    assert view_server.Handler.timeout == view_server.SOCKET_SECONDS
    monkeypatch.setattr(view_server.Handler, "timeout", 1.0)
    made = ViewServer([])
    with made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def exchanged(server: ViewServer, sent: bytes) -> bytes:
    """All that comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def test_the_key_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that is started for real: its command line is what every user can read."""
    log, script = tmp_path / "log", tmp_path / "browser"
    script.write_text(FAKE_BROWSER.format(python=sys.executable, log=str(log)))
    script.chmod(0o700)
    seen: dict[str, str] = {}

    def look(server: ViewServer) -> None:
        seen["key"] = server.key
        for _ in range(400):
            if log.is_file() and log.read_text():
                break
            time.sleep(0.05)
        seen["line"] = log.read_text()
        page = Path(unquote(urlsplit(seen["line"]).path))
        seen["text"] = page.read_text() if page.is_file() else ""
        seen["modes"] = " ".join(oct(stat.S_IMODE(p.stat().st_mode)) for p in (page, page.parent))
        seen["folder"] = str(page.parent)
        server.server_close()

    monkeypatch.setattr(pages.webbrowser, "open", lambda url: _start(script, url))
    monkeypatch.setattr(pages, "serve", look)
    monkeypatch.setattr(pages, "_indices", lambda _: [])
    pages.serve_runs([], 0, browser=True)
    for process in _STARTED:
        process.kill()
        process.wait()
    _STARTED.clear()
    assert seen["key"] not in seen["line"]
    assert seen["line"].startswith("file://")
    assert re.search(f"http://127.0.0.1:[0-9]+/{re.escape(seen['key'])}/", seen["text"])
    assert seen["modes"] == "0o600 0o700"
    assert not Path(seen["folder"]).exists(), "it is removed when the viewer ends"


_STARTED: list[subprocess.Popen[bytes]] = []


def _start(script: Path, url: str) -> bool:
    _STARTED.append(subprocess.Popen([str(script), url]))
    return True


def test_no_browser_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mock()
    monkeypatch.setattr(pages.webbrowser, "open", opened)
    monkeypatch.setattr(pages, "serve", ViewServer.server_close)
    monkeypatch.setattr(pages, "_indices", lambda _: [])
    pages.serve_runs([], 0, browser=False)
    opened.assert_not_called()


STRANGE = {
    "a star": b"GET * HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "no slash": b"GET x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "half an address": b"GET http://[ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "another address": b"GET http://[::1/{key}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "not ascii": b"GET /\xff\xfe/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a nul": b"GET /\x00/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "an old version": b"GET /x\r\n",
    "no version": b"GET / HTTP/x.y\r\n\r\n",
    "no host": b"GET /{key}/ HTTP/1.1\r\n\r\n",
    "an empty host": b"GET /{key}/ HTTP/1.1\r\nHost:\r\n\r\n",
    "a folded host": b"GET /{key}/ HTTP/1.1\r\nHost: {host}\r\n evil\r\n\r\n",
    "two hosts, own first": b"GET /{key}/ HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n",
    "two hosts, own last": b"GET /{key}/ HTTP/1.1\r\nHost: evil\r\nhost: {host}\r\n\r\n",
    "the same host twice": b"GET /{key}/ HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n",
    "another method": b"POST /{key}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a long line": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 300 + b"\r\n",
    "garbage": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_strange_requests_get_a_refusal_and_no_traceback(
    server: ViewServer, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    host = f"127.0.0.1:{server.server_port}".encode()
    sent = STRANGE[kind].replace(b"{host}", host).replace(b"{key}", server.key.encode())
    found = exchanged(server, sent)
    status = re.match(rb"HTTP/1\.1 (4\d\d|50[15]) ", found)
    plain = (b"Error code: 4", b"open the URL that was printed")  # HTTP/0.9 has no status
    assert status or any(text in found for text in plain), found[:200]
    assert server.key.encode() not in found
    for leak in (b"Traceback", b"Python/", b"BaseHTTP", b'src="app.js"'):
        assert leak not in found
    assert capfd.readouterr().err == ""


def test_a_silent_connection_is_closed(server: ViewServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert connection.recv(100) == b""


def test_a_client_that_leaves_prints_nothing(
    server: ViewServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in ("/", f"/{server.key}/"):
        left = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        left.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n".encode())
        left.close()  # with a reset
    time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_the_printed_address_still_works(server: ViewServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", urlsplit(server.address).path)
    answer = connection.getresponse()
    assert answer.status == 200
    assert b"app.js" in answer.read()
    connection.close()
