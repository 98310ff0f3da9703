"""A program in another Python environment that answers requests, one JSON object per line.

A request is `{"id": 1, "call": NAME, ...}`, an answer `{"id": 1, "result": ...}` or
`{"id": 1, "error": "..."}`. Nothing is pickled. The program is not trusted to keep the protocol: an
answer that breaks it, is too long or does not arrive in time ends the process, and every request
that waits gets the same error.
"""

import atexit
import json
import math
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import IO, Any, NoReturn
from weakref import WeakSet

from pettingllms.errors import LibraryError

MAX_LINE = 64 * 2**20
"""Longest answer, in bytes."""
MAX_STDERR_LINES = 20
CANCEL_SECONDS = 5.0
"""Time in which a program must confirm that it ended a request."""
SHOWN = 300
"""Characters of a malformed answer or of stderr that an error shows."""
_running: "WeakSet[JsonChild]" = WeakSet()


class JsonChild:
    """A running program, and the requests that wait for it. Safe to call from several threads."""

    def __init__(
        self,
        words: Sequence[str],
        what: str,
        environment: Mapping[str, str] | None = None,
        max_line: int = MAX_LINE,
    ) -> None:
        self._what, self._max_line = what, max_line
        self._waiting: dict[int, Future[Any]] = {}
        self._last_id = 0
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._stderr: deque[str] = deque(maxlen=MAX_STDERR_LINES)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user names the environment
                list(words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ if environment is None else environment),
                start_new_session=True,  # `stop` ends the whole group
            )
        except OSError as error:
            raise LibraryError(f"{what} cannot be started: {error}") from error
        self._readers = [
            threading.Thread(target=target, daemon=True, name=f"json-child-{name}")
            for name, target in {
                "stdin": self._write,
                "stdout": self._read,
                "stderr": self._keep_stderr,
            }.items()
        ]
        for thread in self._readers:
            thread.start()
        _running.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether the program can take requests."""
        return self._failure is None

    def send(self, call: str, **arguments: Any) -> "Future[Any]":
        """Send a request; the future holds its result, or LibraryError."""
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # only the program or its end resolves it
        with self._lock:
            if self._failure is not None:
                answer.set_exception(LibraryError(self._failure))
                return answer
            self._last_id += 1
            number = self._last_id
            self._waiting[number] = answer
        answer.request_id = number  # type: ignore[attr-defined]
        text = json.dumps({"id": number, "call": call, **arguments}, allow_nan=False)
        self._lines.put(text.encode() + b"\n")
        return answer

    def request(self, call: str, seconds: float, **arguments: Any) -> Any:
        """Send a request and wait for its result; LibraryError if there is none in time."""
        answer = self.send(call, **arguments)
        try:
            return answer.result(seconds)
        except FutureTimeoutError:
            self._fail(f"did not answer '{call}' within {seconds:g} s")
            return answer.result(0)

    def cancel(self, answer: "Future[Any]") -> None:
        """Tell the program that this request is no longer waited for.

        A program that does not confirm it is stuck, and is killed.
        """
        number = getattr(answer, "request_id", None)
        with self._lock:
            if number is None or self._failure is not None or answer.done():
                return
        self._lines.put(json.dumps({"id": 0, "call": "cancel", "of": number}).encode() + b"\n")

        def check() -> None:
            if not answer.done():
                self._fail(f"did not end a cancelled request within {CANCEL_SECONDS:g} s")

        timer = threading.Timer(CANCEL_SECONDS, check)
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Kill the process group; requests that wait fail."""
        self._fail("was stopped")
        for thread in self._readers:
            if thread is not threading.current_thread():
                thread.join(timeout=5)

    def _write(self) -> None:
        pipe = _pipe(self._process.stdin)
        with suppress(OSError), pipe:  # the reader reports the end of the process
            while (line := self._lines.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _keep_stderr(self) -> None:
        pipe = _pipe(self._process.stderr)
        with suppress(OSError), pipe:
            while line := pipe.readline(10_000):
                self._stderr.append(line.decode(errors="replace").rstrip())

    def _read(self) -> None:
        pipe = _pipe(self._process.stdout)
        with suppress(OSError), pipe:
            while line := pipe.readline(self._max_line + 1):
                problem = self._take(line)
                if problem:
                    self._fail(problem)
                    return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._readers[2].join(timeout=1)  # its last words
        self._fail(f"ended with code {self._process.poll()}")

    def _take(self, line: bytes) -> str:
        """Deliver an answer. Returns what is wrong with it, or nothing."""
        if len(line) > self._max_line:
            return f"sent a line of more than {self._max_line} bytes"
        try:
            answer = json.loads(line, parse_constant=_reject, parse_float=_finite)
        except (ValueError, RecursionError):
            return f"sent a line that is not JSON: {line[:SHOWN]!r}"
        known = isinstance(answer, dict) and set(answer) in ({"id", "result"}, {"id", "error"})
        if not known or type(answer["id"]) is not int:
            return f"sent a line that is no answer: {line[:SHOWN]!r}"
        with self._lock:
            waiting = self._waiting.pop(answer["id"], None)
            is_early = answer["id"] > self._last_id
        if waiting is None:
            return f"answered the unknown request {answer['id']}" if is_early else ""
        if "result" in answer:
            waiting.set_result(answer["result"])
        else:
            waiting.set_exception(LibraryError(f"{self._what}: {_plain(answer['error'])}"))
        return ""

    def _fail(self, problem: str) -> None:
        """End the process and fail all requests with one message."""
        with self._lock:
            first = self._failure is None
            if first:
                said = _plain("; ".join(line for line in self._stderr if line.strip())[-SHOWN:])
                tail = f" (stderr: {said})" if said else ""
                self._failure = f"{self._what} {problem}{tail}"
            waiting, self._waiting = list(self._waiting.values()), {}
        if first:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._lines.put(None)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        for answer in waiting:
            answer.set_exception(LibraryError(self._failure))


@atexit.register
def _stop_all() -> None:
    """Stop processes before the interpreter freezes the threads that read from them."""
    for child in list(_running):
        child.stop()


def _plain(text: object) -> str:
    return " ".join(str(text).split())[:2000]


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.20} is out of range")
    return value


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - the process was started with pipes
    return pipe
