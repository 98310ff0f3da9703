"""The worker process that grades answers with math-verify in the sandbox.

A model's answer decides how much work the computer algebra system does, so grading happens where it
may fail. This process loads math-verify once, sandboxes itself (`isolation`) and forks. The child
grades answers until one takes too long (the kernel's timer then kills it) or needs too much memory;
the next child is ready within milliseconds. Nothing here runs in a training process.

A message names the cause: `cut` is an answer that took too long or made the algebra system raise;
`ended` may be a fault of the machine and is retried.

No file can be read inside the sandbox, so all modules are loaded before. A later import kills the
child and is reported: if it only failed, the algebra system would continue with another result.

The timer counts CPU time, so answers are not lost on a busy machine.

One JSON request per line, one JSON verdict per line.
"""

import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from pettingllms.grading.isolation import close_for_child, close_for_good

OUT_OF_MEMORY, REPORTED = 3, 4
"""Exit codes of a child that cannot continue: REPORTED if it has reported the reason."""


class NothingMore:
    """An import hook that finds no module and ends the process."""

    def __init__(self, verdicts: int) -> None:
        self._verdicts = verdicts

    def find_spec(self, name: str, *_: object) -> NoReturn:
        _notify(self._verdicts, {"cut": f"it asks for {name}, which was not loaded before"})
        os._exit(REPORTED)


def serve(seconds: float, memory_mb: int, *, confined: bool) -> None:
    """Serve requests from stdin until it ends. Other output is discarded."""
    requests, verdicts = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    from pettingllms.grading.reading import MathVerify

    reader = MathVerify()
    limit = _memory_now() + memory_mb * 1024 * 1024
    if confined:
        close_for_good()
    _notify(verdicts, {"ready": True})
    while (child := os.fork()) != 0:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            os._exit(0)
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == REPORTED):
            _notify(verdicts, _cause(status, seconds, memory_mb))
    for kind, most in (("AS", limit), ("FSIZE", 0), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
    sys.meta_path[:] = [NothingMore(verdicts)]
    if confined:
        close_for_child()
    _read(reader, requests, verdicts, seconds)
    os._exit(0)


def _read(reader: Any, requests: int, verdicts: int, seconds: float) -> None:
    """One child: serve verdicts until stdin ends."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while line := _line(requests):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            message = {"right": reader.same(request["answer"], request["truth"])}
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - any error that an answer provokes
            message = {"cut": f"reading it raised {type(error).__name__}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _notify(verdicts, message)


def _line(stream: int) -> bytes:
    """Read one request. There is never a second one in flight, so nothing after it is read."""
    found = b""
    while not found.endswith(b"\n") and (part := os.read(stream, 65536)):
        found += part
    return found


def _notify(stream: int, message: dict[str, Any]) -> None:
    os.write(stream, json.dumps(message).encode() + b"\n")


def _cause(status: int, seconds: float, memory_mb: int) -> dict[str, str]:
    """How a child ended, and whether only the answer can be the cause."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return {"cut": f"it is not read within {seconds:g} s"}
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return {"ended": f"it needs more than {memory_mb} MB"}
    return {"ended": f"reading it ended the process (status {status})"}


def _memory_now() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no pathlib where memory is counted
        return int(file.read().split()[0]) * resource.getpagesize()
