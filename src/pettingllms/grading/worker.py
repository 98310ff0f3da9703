"""The process in which answers are read: math-verify, behind a timer and a memory limit.

Reading an answer is work for a computer algebra system, and what a model wrote decides how much
work. So it is done where it may fail: this process loads math-verify once and forks; the child
reads answers until one of them takes too long (the kernel's timer then ends it, wherever it is)
or needs too much memory, and the next child is there within milliseconds. Nothing in here runs in
a process that trains.

The timer counts the processor's time, not the clock's: an answer is not lost because the machine is
busy, and what hangs here hangs at work.

One request a line, one verdict a line, both JSON.
"""

import json
import os
import resource
import signal
import sys
from typing import Any

from pettingllms.grading.reading import MathVerify

OUT_OF_MEMORY = 3


def serve(seconds: float, memory_mb: int) -> None:
    """Answer requests from stdin until it ends. Whatever else is printed goes nowhere."""
    requests, verdicts = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    reader = MathVerify()
    _say(verdicts, {"ready": True})
    while (child := os.fork()) != 0:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        _say(verdicts, {"failed": _cause(status, seconds, memory_mb)})
    _read(reader, requests, verdicts, seconds, memory_mb)
    os._exit(0)


def _read(reader: MathVerify, requests: int, verdicts: int, seconds: float, memory_mb: int) -> None:
    """One child: verdicts until stdin ends."""
    limit = _memory_now() + memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while line := _line(requests):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            right = reader.same(request["answer"], request["truth"])
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(verdicts, {"right": right})


def _line(stream: int) -> bytes:
    """A request. There is never a second one under way, so nothing behind it is read."""
    found = b""
    while not found.endswith(b"\n") and (part := os.read(stream, 65536)):
        found += part
    return found


def _say(stream: int, message: dict[str, Any]) -> None:
    os.write(stream, json.dumps(message).encode() + b"\n")


def _cause(status: int, seconds: float, memory_mb: int) -> str:
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return f"it needs more than {memory_mb} MB"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return f"it is not read within {seconds:g} s"
    return f"reading it ended the process (status {status})"


def _memory_now() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no pathlib where memory is counted
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    serve(float(sys.argv[1]), int(sys.argv[2]))
