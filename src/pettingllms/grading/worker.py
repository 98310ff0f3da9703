"""The process in which answers are read: math-verify, behind the walls of the sandbox.

Reading an answer is work for a computer algebra system, and what a model wrote decides which work,
and how much. So it is done where it may fail: this process loads math-verify once, closes every
door behind itself (`walls`) and forks; the child reads answers until one of them takes too long
(the kernel's timer then ends it, wherever it is) or needs too much memory, and the next child is
there within milliseconds. Nothing in here runs in a process that trains.

What a message says is who is at fault: `cut` is an answer that took too long or made the algebra
raise, which only that answer can do; `ended` may be the machine's doing, and is asked about again.

No file can be read inside, so all modules are loaded before. One that is asked for later ends the
child and is named: if it were only missing, the algebra would go on without it and say something
else.

The timer counts the processor's time, not the clock's: an answer is not lost because the machine is
busy, and what hangs here hangs at work.

One request a line, one verdict a line, both JSON.
"""

import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from pettingllms.grading.isolation import close_for_child, close_for_good

OUT_OF_MEMORY, TOLD = 3, 4
"""How a child ends that could not go on: TOLD if it has said why."""


class NothingMore:
    """Finds no module, and lets nobody take that for an answer."""

    def __init__(self, verdicts: int) -> None:
        self._verdicts = verdicts

    def find_spec(self, name: str, *_: object) -> NoReturn:
        _notify(self._verdicts, {"cut": f"it asks for {name}, which was not loaded before"})
        os._exit(TOLD)


def serve(seconds: float, memory_mb: int, *, confined: bool) -> None:
    """Answer requests from stdin until it ends. Whatever else is printed goes nowhere."""
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
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == TOLD):
            _notify(verdicts, _cause(status, seconds, memory_mb))
    for kind, most in (("AS", limit), ("FSIZE", 0), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
    sys.meta_path[:] = [NothingMore(verdicts)]
    if confined:
        close_for_child()
    _read(reader, requests, verdicts, seconds)
    os._exit(0)


def _read(reader: Any, requests: int, verdicts: int, seconds: float) -> None:
    """One child: verdicts until stdin ends."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while line := _line(requests):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            message = {"right": reader.same(request["answer"], request["truth"])}
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - whatever an answer makes the algebra raise
            message = {"cut": f"reading it raised {type(error).__name__}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _notify(verdicts, message)


def _line(stream: int) -> bytes:
    """A request. There is never a second one under way, so nothing behind it is read."""
    found = b""
    while not found.endswith(b"\n") and (part := os.read(stream, 65536)):
        found += part
    return found


def _notify(stream: int, message: dict[str, Any]) -> None:
    os.write(stream, json.dumps(message).encode() + b"\n")


def _cause(status: int, seconds: float, memory_mb: int) -> dict[str, str]:
    """How a child ended, and whether that can only be the answer's fault."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return {"cut": f"it is not read within {seconds:g} s"}
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return {"ended": f"it needs more than {memory_mb} MB"}
    return {"ended": f"reading it ended the process (status {status})"}


def _memory_now() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no pathlib where memory is counted
        return int(file.read().split()[0]) * resource.getpagesize()
