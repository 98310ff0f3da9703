"""The page over HTTP, for this machine alone.

It listens on loopback, and every address begins with a key that is made anew each time. So other
users of the machine, and pages of other sites in the same browser, get nothing: they do not know
the key, and a request under another host name is refused. It only ever reads.
"""

import json
import secrets
import sqlite3
import sys
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from pettingllms.errors import PettingError, describe
from pettingllms.viewer.endpoints import Answers, question_of
from pettingllms.viewer.index import Index
from pettingllms.viewer.page import FILES, TYPES, page

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
BROKEN = (OSError, OverflowError, ValueError, sqlite3.Error)
"""What a file that is damaged raises where nothing more is known of it."""
PAUSE = 1.0
"""Seconds between two looks at a run that may be going on."""
SOCKET_SECONDS = 20.0
"""How long a connection may send nothing, or take nothing, before it is closed."""


class ViewServer(ThreadingHTTPServer):
    """Serves the page, and follows the runs in a thread of its own."""

    daemon_threads = True

    def __init__(self, indices: Sequence[Index], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key = secrets.token_urlsafe(16)
        self.answers = Answers(indices)
        self._problems = [""] * len(indices)
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, args=(indices,), daemon=True)

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.key}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show errors of the viewer, and none that a client makes by leaving."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def problem(self) -> str:
        """What keeps the tables from being complete."""
        return "; ".join(filter(None, self._problems))

    def __enter__(self) -> "ViewServer":
        self._follower.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._stop.set()
        self._follower.join()
        self.server_close()

    def _follow(self, indices: Sequence[Index]) -> None:
        while not self._stop.is_set():
            for at, index in enumerate(indices):
                try:
                    index.update(self._stop)
                    self._problems[at] = ""
                except (PettingError, *BROKEN) as error:
                    self._problems[at] = str(error)
            self._stop.wait(PAUSE)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "PettingLLMs"
    sys_version = ""
    timeout = SOCKET_SECONDS

    def do_GET(self) -> None:
        """Give the page, a file of it, or data."""
        path, _, query = self.path.partition("?")
        key, _, what = path.removeprefix("/").partition("/")
        known = secrets.compare_digest(key.encode(), self.server.key.encode())
        if not known or not self._is_own_host():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"open the address that was printed\n")
            return
        try:
            self._answer(what, dict(parse_qsl(query)))
        except (ConnectionError, TimeoutError):
            raise  # the browser closed the connection: there is nobody to answer
        except PettingError as error:
            self._send_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except BROKEN as error:
            self._send_json({"error": describe(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _is_own_host(self) -> bool:
        """Whether the request names this server, once: two headers may be read as either."""
        port = self.server.server_port
        named = self.headers.get_all("Host", [])
        return named in ([f"127.0.0.1:{port}"], [f"localhost:{port}"])

    def _answer(self, what: str, asked: dict[str, str]) -> None:
        if what == "":
            self._send(HTTPStatus.OK, TYPES["html"], page().encode())
        elif what in FILES:
            self._send(HTTPStatus.OK, TYPES[what.rpartition(".")[2]], FILES[what].read_bytes())
        elif (found := self._data(what, asked)) is not None:
            self._send_json(found)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")

    def _data(self, what: str, asked: dict[str, str]) -> dict[str, Any] | None:
        answers, run = self.server.answers, _number(asked.get("run", "0"))
        match what:
            case "data/overview":
                return answers.overview()
            case "data/state":
                return {**answers.state(), "problem": self.server.problem}
            case "data/metrics":
                return answers.metrics(run)
            case "data/episodes":
                return answers.episodes(run, question_of(asked))
            case "data/episode":
                return answers.episode(run, _number(asked.get("n", "")))
        return None

    def _send_json(self, data: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, TYPES["json"], json.dumps(data, allow_nan=False).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing of requests: addresses have the key in them."""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else -1


def serve(server: ViewServer) -> None:
    """Serve until Ctrl-C."""
    with server:
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
