"""One address for several gateways: a request goes to the gateway that issued its API key.

The key names its gateway by a public tag (`keys.tag_in`), so all requests of an episode reach the
gateway that records it. The router holds no keys and grants nothing: gateways authenticate.
"""

import asyncio
import json
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from pettingllms.gateway.calls import CallError
from pettingllms.gateway.dialects.anthropic_messages import MESSAGES
from pettingllms.gateway.dialects.base import openai_error
from pettingllms.gateway.forwarding import Receive, ReplicaError, Scope, Send, forward
from pettingllms.gateway.http_headers import BoundedHttp, server_of
from pettingllms.gateway.keys import INVALID, tag_in, tokens_in

ABORT = "pettingllms.abort"
"""Name of the extension that closes the connection of a request."""
ABORT_SECONDS = START_SECONDS = 30.0


class RoutedHttp(BoundedHttp):
    """Lets the application close a connection within a response."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: Any = {ABORT: self.transport.abort}
        self.scope["extensions"] = extensions


class Router:
    """A thread that listens on one address and forwards to gateways."""

    def __init__(self) -> None:
        self.url = ""
        self._addresses: dict[str, tuple[str, int]] = {}
        """Host and port of each gateway, by tag."""
        self._server = server_of(
            self._answer,
            RoutedHttp,
            interface="asgi3",  # uvicorn takes a method for an older interface
            proxy_headers=False,
            date_header=False,  # gateways send it
        )
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> None:
        """Start listening; port 0 picks a free port. OSError if the address cannot be used."""
        listening = socket.create_server((host, port), backlog=2048)
        self.url = f"http://{host}:{listening.getsockname()[1]}"
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), daemon=True, name="router"
        )
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started and time.monotonic() < end:
            time.sleep(0.001)  # uvicorn has no event to wait for
        assert self._server.started  # noqa: S101 - it only has to create an event loop

    def stop(self) -> None:
        """Close all connections and stop listening."""
        for protocol in list(self._server.server_state.connections):
            connection: Any = protocol
            connection.loop.call_soon_threadsafe(connection.transport.abort)
        self._server.should_exit = self._server.force_exit = True
        if self._thread is not None:
            self._thread.join(timeout=5)

    def add(self, tag: str, url: str) -> None:
        """Forward requests with keys of this tag to a gateway, from now on."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None  # noqa: S101, PT018
        self._addresses[tag] = (parts.hostname, parts.port)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The router as an ASGI application."""
        try:
            try:
                is_whole = await forward(self._address(scope), scope, receive, send)
            except ReplicaError as error:
                what = "the gateway of this key does not answer; its rollout worker may have died"
                raise CallError(503, what) from error
        except CallError as problem:
            await _reject(problem, scope, send)
            return
        if not is_whole:
            scope["extensions"][ABORT]()
            async with asyncio.timeout(ABORT_SECONDS):
                while (await receive())["type"] != "http.disconnect":
                    pass  # the rest of the body

    def _address(self, scope: Scope) -> tuple[str, int]:
        tokens = tokens_in(scope["headers"])
        if not tokens:
            raise CallError(401, "missing API key; send the key of the episode")
        tags = {tag_in(token) or "" for token in tokens}
        address = self._addresses.get(tags.pop())
        if address is None or tags:
            raise CallError(401, INVALID)
        return address


async def _reject(problem: CallError, scope: Scope, send: Send) -> None:
    """Send an error in the dialect of the request's path."""
    is_anthropic = scope["path"].endswith(f"/v1{MESSAGES.path}")
    error = MESSAGES.error(problem) if is_anthropic else openai_error(problem)
    body = json.dumps(error).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    if problem.status == 400:  # what follows may not be a request
        headers.append((b"connection", b"close"))
    start = {"type": "http.response.start", "status": problem.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
