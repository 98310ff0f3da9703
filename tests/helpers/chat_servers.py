"""A scripted OpenAI-compatible server on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(answers: list[tuple[int, object]]) -> Iterator[tuple[str, list[dict]]]:
    """A server that gives these answers in turn, the last one forever; and its requests."""
    asked: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({"path": self.path, "body": body, "auth": self.headers["Authorization"]})
            status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reply(text: str, finish: str = "stop") -> tuple[int, object]:
    return 200, {"choices": [{"message": {"content": text}, "finish_reason": finish}]}
