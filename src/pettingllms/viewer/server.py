"""Serve the page over HTTP, for this machine only.

The server listens on loopback, and every URL starts with a random key that is new for each start.
Other users and other sites' pages do not know the key, and requests with another Host header are
rejected. The server never writes to a run.
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
from pettingllms.viewer.endpoints import Endpoints, parse_query
from pettingllms.viewer.episode_index import EpisodeIndex
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
READ_ERRORS = (OSError, OverflowError, ValueError, sqlite3.Error)
"""Raised by damaged files without a more specific error."""
POLL_SECONDS = 1.0
"""Interval for checking runs in progress."""
SOCKET_SECONDS = 20.0
"""Idle time after which a connection is closed."""


class ViewServer(ThreadingHTTPServer):
    """Serves the page and indexes growing runs in a background thread."""

    daemon_threads = True

    def __init__(self, indices: Sequence[EpisodeIndex], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key = secrets.token_urlsafe(16)
        self.endpoints = Endpoints(indices)
        self._problems = [""] * len(indices)
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, args=(indices,), daemon=True)

    @property
    def address(self) -> str:
        """URL of the page, including the key."""
        return f"http://127.0.0.1:{self.server_port}/{self.key}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors of the viewer, but not disconnects."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def problem(self) -> str:
        """Why the indices are incomplete, if they are."""
        return "; ".join(filter(None, self._problems))

    def __enter__(self) -> "ViewServer":
        self._follower.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._stop.set()
        self._follower.join()
        self.server_close()

    def _follow(self, indices: Sequence[EpisodeIndex]) -> None:
        while not self._stop.is_set():
            for at, index in enumerate(indices):
                try:
                    index.update(self._stop)
                    self._problems[at] = ""
                except (PettingError, *READ_ERRORS) as error:
                    self._problems[at] = str(error)
            self._stop.wait(POLL_SECONDS)


class Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "PettingLLMs"
    sys_version = ""
    timeout = SOCKET_SECONDS

    def do_GET(self) -> None:
        """Send the page, one of its files, or data."""
        path, _, query = self.path.partition("?")
        key, _, resource = path.removeprefix("/").partition("/")
        known = secrets.compare_digest(key.encode(), self.server.key.encode())
        if not known or not self._is_own_host():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"open the URL that was printed\n")
            return
        try:
            self._respond(resource, dict(parse_qsl(query)))
        except (ConnectionError, TimeoutError):
            raise  # the browser closed the connection
        except PettingError as error:
            self._send_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except READ_ERRORS as error:
            self._send_json({"error": describe(error)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def _is_own_host(self) -> bool:
        """Whether the request has exactly one Host header, and it names this server."""
        port = self.server.server_port
        hosts = self.headers.get_all("Host", [])
        return hosts in ([f"127.0.0.1:{port}"], [f"localhost:{port}"])

    def _respond(self, resource: str, parameters: dict[str, str]) -> None:
        if resource == "":
            self._send(HTTPStatus.OK, TYPES["html"], page().encode())
        elif resource in FILES:
            self._send(
                HTTPStatus.OK, TYPES[resource.rpartition(".")[2]], FILES[resource].read_bytes()
            )
        elif (data := self._data(resource, parameters)) is not None:
            self._send_json(data)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")

    def _data(self, resource: str, parameters: dict[str, str]) -> dict[str, Any] | None:
        endpoints, run = self.server.endpoints, _number(parameters.get("run", "0"))
        match resource:
            case "data/overview":
                return endpoints.overview()
            case "data/state":
                return {**endpoints.state(), "problem": self.server.problem}
            case "data/metrics":
                return endpoints.metrics(run)
            case "data/episodes":
                return endpoints.episodes(run, parse_query(parameters))
            case "data/episode":
                return endpoints.episode(run, _number(parameters.get("n", "")))
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
        """Do not log requests: their URLs contain the key."""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else -1


def serve(server: ViewServer) -> None:
    """Serve until Ctrl-C."""
    with server:
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            sys.stderr.write("\n")
