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
from importlib import import_module
from typing import Any

from pettingllms.errors import ClusterError

END_SECONDS = 20.0
SHOWN_BYTES = 2000
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
            start_new_session=True,
        )

    async def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one line."""
        return await asyncio.to_thread(self._ask, request)

    def stop(self) -> None:
        """End the process and all that it started."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        assert self._process.stdout is not None  # noqa: S101 - as above
        try:
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            self._process.stdout.close()
            self._said.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        assert self._process.stdout is not None  # noqa: S101 - as above
        answer = ""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            pass
        if not answer:
            raise ClusterError(f"{self._module} ended before it answered:\n{self._last_words()}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - SHOWN_BYTES))
        return self._said.read().decode(errors="replace")


def serve(module: str) -> None:
    """Answer until there are no more lines. What libraries print goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        work = None
        for line in sys.stdin:
            request = json.loads(line)
            if work is None:
                work, answer = import_module(module).load(**request), {}
            else:
                answer = work(**request)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
