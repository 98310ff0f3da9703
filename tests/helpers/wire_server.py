"""WebSocket servers on loopback: one that answers as `serve-env` does, and hostile ones."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from pettingllms.envs import Environment
from pettingllms.envs.openenv.served import Served
from pettingllms.envs.openenv.sessions import PlaySession

Answer = str | bytes | None
Script = Callable[[dict[str, Any], ServerConnection], Answer]
"""Maps a message to the answer; None sends nothing."""


def observed(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of a session in the form that OpenEnv sends."""
    shown = {name: one for name, one in answer.items() if name not in ("reward", "done")}
    data = {"observation": shown, "reward": answer["reward"], "done": answer["done"]}
    return {"type": "observation", "data": data}


def answer_of(session: PlaySession, message: dict[str, Any]) -> dict[str, Any]:
    """What OpenEnv's server answers to a message."""
    try:
        if message["type"] == "state":
            return {"type": "state", "data": session.describe()}
        act = session.reset if message["type"] == "reset" else session.step
        return observed(act(message["data"]))
    except Exception as error:  # noqa: BLE001 - as OpenEnv does
        return {"type": "error", "data": {"message": str(error), "code": "EXECUTION_ERROR"}}


def faithful(env: Environment[Any, Any]) -> Callable[[], Script]:
    """Sessions of an environment."""
    served = Served(env)

    def connected() -> Script:
        session = PlaySession(served)
        return lambda message, _: json.dumps(answer_of(session, message))

    return connected


@contextmanager
def wire_server(connected: Callable[[], Script]) -> Iterator[str]:
    """The address of a server that runs one script per connection."""

    def handle(connection: ServerConnection) -> None:
        script = connected()
        try:
            for text in connection:
                message = json.loads(text)
                if message["type"] == "close":
                    return
                answer = script(message, connection)
                if answer is not None:
                    connection.send(answer)
        except (ConnectionClosed, OSError):
            return

    with serve(handle, "127.0.0.1", 0, compression=None, max_size=2**26) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(5)


@contextmanager
def http_server(
    body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Iterator[str]:
    """The address of a server that answers every GET with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
