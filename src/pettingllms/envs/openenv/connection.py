"""The client's end of OpenEnv's WebSocket: one request at a time, with size limits and deadlines.

OpenEnv keeps episodes only on WebSocket connections: its HTTP requests create an environment each.
"""

import json
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from pettingllms.envs.openenv.fields import Field, clean, read_object
from pettingllms.envs.openenv.wire import MAX_ANSWER
from pettingllms.errors import ConfigError, LibraryError, NoAnswerError, WireError, describe
from pettingllms.runtime.call_clock import pause_call_clock
from pettingllms.runtime.http_client import JsonClient

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
MAX_ERROR = 400
MAX_SCHEMA = 2**20
CLOSE_SECONDS = 1.0
BUSY = "CAPACITY_REACHED"
REFUSED = "VALIDATION_ERROR"


class ConnectionLost(NoAnswerError):  # noqa: N818 - the episode may continue on another one
    """The connection ended, or its state is unknown after a deadline."""


class ServerError(NoAnswerError):
    """The server answered with an error; the connection is still usable."""

    def __init__(self, message: str, code: str, text: str) -> None:
        super().__init__(message)
        self.code, self.text = code, text


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and how to reach it."""

    url: str
    """The address as the user wrote it, for errors."""
    host: str
    port: int
    path: str
    is_secure: bool
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 60.0
    connect_seconds: float = 10.0

    @property
    def socket_url(self) -> str:
        """The address of the WebSocket."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.is_secure else 'ws'}://{host}:{self.port}{self.path}/ws"


def read_address(url: str, key: str, seconds: float, connect_seconds: float) -> Address:
    """Check an address; `key` names the environment variable of its API key."""
    source, form = f"openenv:{url}", "write openenv:http://HOST:PORT"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(source, [f"is no address ({error}); {form}"]) from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise ConfigError(source, [f"is no address; {form}"])
    if parts.username or parts.password or parts.query or parts.fragment:
        what = f"has a user, a query or a fragment; {form}, and give an API key with env.key"
        raise ConfigError(source, [what])
    is_secure = SCHEMES[parts.scheme] == "wss"
    checked = JsonClient(f"http{'s' * is_secure}://{parts.netloc}", key, "env.key")
    return Address(
        url,
        parts.hostname,
        port or (443 if is_secure else 80),
        parts.path.rstrip("/"),
        is_secure,
        dict(checked.headers),
        seconds,
        connect_seconds,
    )


class Connection:
    """One session of a server. Requests of several threads wait for each other."""

    def __init__(self, address: Address) -> None:
        connect = _websockets_connect()
        self._address = address
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self.is_open = False
        try:
            raw = socket.create_connection(
                (address.host, address.port), timeout=address.connect_seconds
            )
            raw.settimeout(None)
            context = ssl.create_default_context() if address.is_secure else None
            opened = connect(
                address.socket_url,
                sock=raw,
                ssl=context,
                proxy=None,
                additional_headers=address.headers,
                compression=None,
                open_timeout=address.connect_seconds,
                close_timeout=CLOSE_SECONDS,
                ping_timeout=None,
                max_size=MAX_ANSWER,
            )
            self._socket = self._stack.enter_context(opened)
        except (OSError, _websocket_errors()) as error:
            raise ConnectionLost(
                f"no OpenEnv server answers at {address.url}: {_short(describe(error))}; start it, "
                "or correct the address in env.id"
            ) from error
        self.is_open = True

    def request(self, kind: str, data: Any = None) -> Field:
        """Send a message and return the `data` of the answer."""
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        with self._lock, pause_call_clock():
            if not self.is_open:
                raise ConnectionLost(f"the connection to {self._address.url} is closed")
            try:
                return self._exchange(kind, json.dumps(message))
            except ServerError as error:
                if error.code == BUSY:  # the server closes it
                    self.close()
                raise
            except BaseException:  # an answer may still come, and would be taken for the next one
                self.close()
                raise

    def _exchange(self, kind: str, text: str) -> Field:
        url, seconds = self._address.url, self._address.seconds
        end = time.monotonic() + seconds
        try:
            # A full server has answered and closed before it is asked.
            with suppress(_websocket_errors()):
                self._socket.send(text)
            answered = self._socket.recv(timeout=max(0.001, end - time.monotonic()))
        except TimeoutError as error:
            raise ConnectionLost(
                f"{url} did not answer a {kind} within {seconds:g} s (env.seconds)"
            ) from error
        except (OSError, _websocket_errors()) as error:
            raise ConnectionLost(
                f"{url} closed the connection during a {kind}: {_short(describe(error))}"
            ) from error
        return _data_of(read_object(answered, f"the answer of {url} to a {kind}"), kind, url)

    def close(self) -> None:
        """Close the connection, without waiting long for the server."""
        if self.is_open:
            self.is_open = False
            with suppress(Exception):
                self._socket.send('{"type": "close"}')
            with suppress(Exception):
                self._stack.close()


def _data_of(answer: Field, kind: str, url: str) -> Field:
    wanted = "state" if kind == "state" else "observation"
    given = answer["type"]
    if given.value == "error":
        data = Field(answer.path, answer.value.get("data"))
        found = data.entries() if isinstance(data.value, dict) else {}
        code, text = str(found.get("code", ""))[:40], str(found.get("message", "no message"))
        details = f": {found['errors']!r}" if found.get("errors") else ""
        shown = _short(f"{text}{details}")
        raise ServerError(f"{url} refused a {kind} ({_short(code)}): {shown}", code, text)
    if given.value != wanted:
        given.reject(f"'{wanted}'")
    data = answer["data"]
    data.entries()
    return data


def get_json(address: Address, path: str) -> Field:
    """An object from an HTTP path of the server. Redirects are not followed."""
    kind = HTTPSConnection if address.is_secure else HTTPConnection
    client = kind(address.host, address.port, timeout=address.connect_seconds)
    what = f"the answer of {address.url} to {path}"
    try:
        client.request("GET", f"{address.path}{path}", headers=address.headers)
        answer = client.getresponse()
        text = answer.read(MAX_SCHEMA + 1)
    except (OSError, HTTPException) as error:
        raise NoAnswerError(
            f"no OpenEnv server answers at {address.url}{path}: {_short(describe(error))}"
        ) from error
    finally:
        client.close()
    if answer.status != 200:
        raise NoAnswerError(f"{what} has the status {answer.status}; expected 200")
    if len(text) > MAX_SCHEMA:
        raise WireError(f"{what} has over {MAX_SCHEMA} bytes; no more are read")
    return read_object(text, what)


def _short(text: str) -> str:
    """The start of a text that a server wrote, printable."""
    shown = "".join(one if one.isprintable() else " " for one in clean(text))
    return shown[:MAX_ERROR]


def _websockets_connect() -> Any:
    try:
        from websockets.sync.client import connect
    except ModuleNotFoundError as error:
        raise LibraryError(
            f"openenv: environments need websockets ({error}); run: pip install "
            "'pettingllms[openenv]'"
        ) from error
    return connect


def _websocket_errors() -> Any:
    from websockets.exceptions import WebSocketException

    return WebSocketException
