"""Run the plain baseline of a benchmark in a separate process, controlled by JSON lines.

The first line has the arguments of the module's `load`, which returns a function. Each further line
has the arguments of one call of that function.
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

EXIT_TIMEOUT = 10.0
"""Seconds to wait for a process to exit."""
MAX_STDERR_BYTES = 8000
"""Last bytes of stderr to show when a process fails."""


class Process:
    """A module of this package running in a separate process."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment},
            text=True,
            start_new_session=True,  # `stop` ends the whole group
        )

    async def call(self, **request: Any) -> dict[str, Any]:
        """Send one request and return its result."""
        return await asyncio.to_thread(self._call, json.dumps(request) + "\n")

    def stop(self) -> None:
        """Kill the process group."""
        with suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        self._wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        _pipe(self._process.stdout).close()
        self._stderr.close()

    def _call(self, line: str) -> dict[str, Any]:
        response = ""
        with suppress(BrokenPipeError):
            pipe = _pipe(self._process.stdin)
            pipe.write(line)
            pipe.flush()
            response = _pipe(self._process.stdout).readline()
        if not response:
            self._wait()
            raise ClusterError(f"{self._module} exited without a response:\n{self._stderr_tail()}")
        result: dict[str, Any] = json.loads(response)
        return result

    def _wait(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_TIMEOUT)

    def _stderr_tail(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - MAX_STDERR_BYTES))
        return self._stderr.read().decode(errors="replace")


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - the process was started with pipes
    return pipe


def serve(module: str) -> None:
    """Handle requests until stdin closes. Output of libraries goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as responses:
        os.dup2(2, 1)
        work = import_module(module).load(**json.loads(sys.stdin.readline()))
        responses.write("{}\n")
        responses.flush()
        for line in sys.stdin:
            responses.write(json.dumps(work(**json.loads(line))) + "\n")
            responses.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
