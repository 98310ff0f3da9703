"""HTTP servers with limits on the URL and headers of requests.

uvicorn's httptools protocol buffers URLs, headers and trailers of any length, even before a request
is authenticated.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_URL_BYTES = 8_192
MAX_HEAD_BYTES = 32_768
"""Total size of URL, headers and trailers."""
MAX_HEADERS = 100
HEAD_SECONDS = 30.0
"""Time limit to receive URL and headers."""


class HeadError(Exception):
    """The URL or headers of a request exceed a limit."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class BoundedHttp(HttpToolsProtocol):
    """Rejects requests with long or slow URLs and headers, and closes the connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.url = b""
        self._num_head_bytes = 0
        """Bytes of the parsed URL and headers."""
        self._num_pending_bytes = 0
        """Bytes received since the parser last completed the headers or a piece of a body. It
        buffers them while a header is incomplete."""
        self._error: HeadError | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # else a reset connection is kept until its timeout

    def data_received(self, data: bytes) -> None:
        self._num_pending_bytes += len(data)
        super().data_received(data)
        if self._num_pending_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._reject(_too_long(len(self.url)))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._num_head_bytes = 0
        if self._deadline is None:
            self._start_clock()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._num_pending_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_pending_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Also called when a parser callback raises."""
        self._reject(self._error or HeadError(400, msg))

    def _count(self, *parts: bytes) -> None:
        self._num_head_bytes += sum(map(len, parts))
        too_many = len(self.headers) >= MAX_HEADERS
        if self._num_head_bytes > MAX_HEAD_BYTES or len(self.url) > MAX_URL_BYTES or too_many:
            self._error = _too_long(len(self.url))
            raise self._error

    def _reject(self, error: HeadError) -> None:
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self.transport.abort()  # another response is being written to this connection
            return
        body = error.message.encode()
        lines = [
            STATUS_LINE[error.status],
            b"content-type: text/plain; charset=utf-8\r\n",
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
            body,
        ]
        self.transport.write(b"".join(lines))
        self.transport.close()

    def _start_clock(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if not self.transport.is_closing():
            self._reject(HeadError(408, f"the head was not complete within {HEAD_SECONDS:g} s"))


class BoundedServer(uvicorn.Server):
    """A server that leaves signal handling to its process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(app: Any, http: type[BoundedHttp] = BoundedHttp, **options: Any) -> BoundedServer:
    """A server for an ASGI application that logs no requests and names no software."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=http,
        ws="none",
        lifespan="off",
        timeout_keep_alive=60,
        **options,
    )
    return BoundedServer(config)


def _too_long(num_url_bytes: int) -> HeadError:
    if num_url_bytes > MAX_URL_BYTES:
        return HeadError(414, f"the URL is longer than {MAX_URL_BYTES} bytes")
    most = f"{MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
    return HeadError(431, f"the head is longer than {most}")
