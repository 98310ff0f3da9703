"""A small OpenAI-compatible server on loopback, whose answers a test decides."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], "str | tuple[int, object]"]
"""The body of a request in; a reply out, or a status and the content of the answer."""


class Serving:
    """What a server was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.auth: list[str | None] = []


@contextmanager
def serving(answer: Answer, models: tuple[str, ...] = ("tiny/model",)) -> Iterator[Serving]:
    """A server until the block ends."""
    found = Serving()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.auth.append(self.headers["Authorization"])
            self.give(200, {"data": [{"id": name} for name in models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.asked.append(body)
            found.auth.append(self.headers["Authorization"])
            said = answer(body)
            if isinstance(said, str):
                choice = {"message": {"content": said}, "finish_reason": "stop"}
                said = (200, {"choices": [choice]})
            self.give(*said)

        def give(self, status: int, content: object) -> None:
            self.send_response(status)
            self.end_headers()
            text = content if isinstance(content, str) else json.dumps(content)
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # the client may have disconnected

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def first_free_cell(body: dict[str, Any]) -> str:
    """A legal move of tic-tac-toe, with a word before it."""
    board = body["messages"][-1]["content"].split("Your move")[0]
    return f"I take it.\n<answer>{re.findall(r'[1-9]', board)[0]}</answer>"


def slowly(answer: Answer, seconds: float) -> Answer:
    """The same answer, later."""

    def answer_later(body: dict[str, Any]) -> str | tuple[int, object]:
        time.sleep(seconds)
        return answer(body)

    return answer_later
