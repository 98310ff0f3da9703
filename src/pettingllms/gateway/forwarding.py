"""Forwards one HTTP request to a gateway, and its response back, in pieces of bounded size.

Each request has its own connection to the gateway, and its head is written anew from what the
parser read. So no byte of one request can become part of another (request smuggling).
"""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import httptools

from pettingllms.gateway.calls import CallError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
PIECE = 65_536
"""Maximum bytes that are read at once."""
CONNECT_SECONDS = 10.0
PROBE_SECONDS, NUM_PROBES = 5, 4
"""A machine that answers none of so many probes of its connection is gone."""
OWN = frozenset(
    b"connection expect keep-alive proxy-connection te trailer transfer-encoding upgrade".split()
)
"""Headers of a connection, which are not forwarded."""
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class ReplicaError(Exception):
    """A gateway that cannot be reached, or that closed the connection before it had answered."""


class Response:
    """What the parser read of a response."""

    def __init__(self, method: str) -> None:
        self.headers: Headers = []
        self.pieces: list[bytes] = []
        self.has_head = False
        self.is_complete = False
        self._has_body = method != "HEAD"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.has_head = True
        self.is_complete = not self._has_body

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.is_complete = True


async def forward(address: tuple[str, int], scope: Scope, receive: Receive, send: Send) -> bool:
    """Forward a request and its response. False if the gateway failed after the response had begun;
    ReplicaError if it failed before."""
    head, is_chunked = request_head(scope)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(*address, limit=PIECE)
    except OSError as error:
        raise ReplicaError(str(error)) from error
    _notice_loss(writer)
    response = Response(scope["method"])
    writer.write(head)
    upload = asyncio.create_task(_upload(receive, writer, is_chunked))
    download = asyncio.create_task(_download(reader, send, response))
    try:
        await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
        for task in (download, upload):
            if task.done():
                task.result()
    except ReplicaError:
        if not response.has_head:
            raise
        return False
    finally:
        upload.cancel()
        download.cancel()
        await asyncio.gather(upload, download, return_exceptions=True)
        _reset(writer)
    return True


def _notice_loss(writer: asyncio.StreamWriter) -> None:
    """Let the system probe a silent connection: a reply may take minutes, and a machine that loses
    its power or network never closes its connections."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": PROBE_SECONDS,
        "TCP_KEEPALIVE": PROBE_SECONDS,  # its name on macOS
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": NUM_PROBES,
        "TCP_USER_TIMEOUT": PROBE_SECONDS * NUM_PROBES * 1000,  # for data that is not acknowledged
    }
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close without TIME_WAIT: at hundreds of requests per second it would use up all ports."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def request_head(scope: Scope) -> tuple[bytes, bool]:
    """The head of a request for the gateway, and whether its body is sent in chunks."""
    headers: Headers = scope["headers"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    num_lengths = sum(name == b"content-length" for name, _ in headers)
    if num_lengths + len(codings) > 1 or codings not in ([], [b"chunked"]):
        raise CallError(400, "the length of the body is ambiguous; send one content-length header")
    if any(CONTROL.search(value) for _, value in headers):
        raise CallError(400, "a header contains control characters")
    query = scope["query_string"]
    path = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), path)]
    lines += [b"%s: %s" % (name, value) for name, value in headers if name not in OWN]
    lines += [b"transfer-encoding: chunked"] if codings else []
    return b"\r\n".join([*lines, b"", b""]), bool(codings)


async def _upload(receive: Receive, writer: asyncio.StreamWriter, is_chunked: bool) -> None:
    """Send the body; end when the client has disconnected."""
    is_open = True
    while (message := await receive())["type"] != "http.disconnect":
        if not is_open:
            continue  # the client may send the rest; the server bounds what it buffers
        try:
            writer.write(_framed(message, is_chunked))
            await writer.drain()
        except OSError:  # it may have answered before it closed: `_download` finds out
            is_open = False


def _framed(message: Mapping[str, Any], is_chunked: bool) -> bytes:
    body: bytes = message.get("body", b"")
    if not is_chunked:
        return body
    piece = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
    return piece if message.get("more_body") else piece + b"0\r\n\r\n"


async def _download(reader: asyncio.StreamReader, send: Send, response: Response) -> None:
    """Send the response to the client as it arrives."""
    parser = httptools.HttpResponseParser(response)
    has_started = False
    while not response.is_complete:
        try:
            data = await reader.read(PIECE)
            parser.feed_data(data)
        except (OSError, httptools.HttpParserError) as error:
            raise ReplicaError(str(error)) from error
        if not data:
            raise ReplicaError("it closed the connection before the end of its response")
        if response.has_head and not has_started:
            has_started = True
            headers = [pair for pair in response.headers if pair[0] not in OWN]
            status = parser.get_status_code()
            await send({"type": "http.response.start", "status": status, "headers": headers})
        if response.pieces or response.is_complete:
            body, more = b"".join(response.pieces), not response.is_complete
            response.pieces.clear()
            await send({"type": "http.response.body", "body": body, "more_body": more})
