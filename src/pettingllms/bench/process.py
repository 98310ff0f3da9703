"""A process of its own for what we are compared with, asked and answering by lines of JSON.

The first line holds the arguments of the module's `load`, which gives a function; each further line
holds the arguments of one call of that function.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

from pettingllms.errors import ClusterError

END_SECONDS = 10.0
"""How long a process may take to end by itself."""
SHOWN_BYTES = 8000
"""How much of what a process said last is shown when it fails."""


class Process:
    """A module of this package at work in a process of its own."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,  # `stop` ends the whole group
        )

    async def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one line."""
        return await asyncio.to_thread(self._ask, json.dumps(request) + "\n")

    def stop(self) -> None:
        """End the process and all that it started."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        self._wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        _pipe(self._process.stdout).close()
        self._said.close()

    def _ask(self, line: str) -> dict[str, Any]:
        answer = ""
        with suppress(BrokenPipeError):
            pipe = _pipe(self._process.stdin)
            pipe.write(line)
            pipe.flush()
            answer = _pipe(self._process.stdout).readline()
        if not answer:
            self._wait()
            raise ClusterError(f"{self._module} ended without an answer:\n{self._last_words()}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - SHOWN_BYTES))
        return self._said.read().decode(errors="replace")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - the process was started with pipes
    return pipe


def serve(module: str) -> None:
    """Answer until there are no more lines. What libraries print goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        work = import_module(module).load(**json.loads(sys.stdin.readline()))
        answers.write("{}\n")
        answers.flush()
        for line in sys.stdin:
            answers.write(json.dumps(work(**json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
