"""Runs programs on all cases of a problem, in one sandbox.

Each case of each program has a process of its own, made by fork: what hangs is killed alone, and
no case sees what another left behind in memory. The inputs come on stdin, one after the other, and
each is read by the process of its own case. This one never reads an input, so that none is in the
memory that a later case begins with, and never runs what it was given. What it says is data:
answers, to be compared outside with values that were never in here.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import Any

sys.path.insert(0, os.getcwd())  # noqa: PTH109
import wire  # type: ignore[import-not-found]

sys.path.pop(0)
ANSWER = 3
"""Where a called function's answer is written."""
NAME = "solution.py"
PATIENCE = 4
"""Seconds by the clock for each of the processor's: other work may be under way."""
HUNG_TWICE = 2
"""Cases of a program that may run out of time before the others are not tried any more."""
HUNG, STUCK, LATE, UNTRIED = "timeout", "too slow", "out of time", "not tried"
"""A case used up the processor's time that it has; or the clock's; or the time for all was over
first; or two others ended like that."""
TAIL = 400
"""Letters of an error that are told."""


def main() -> None:
    """Run the job: for each program a line on whether it can be built, then one for each case."""
    with open("job.json", encoding="utf-8") as file:  # noqa: PTH123
        job = json.load(file)
    told = os.dup(1)
    end = time.monotonic() + job["total_seconds"]
    for program in job["programs"]:
        num_hung = num_given = 0
        for at in range(-1, job["num_cases"]):
            if num_hung >= HUNG_TWICE:
                answer = {"fault": UNTRIED}
            elif time.monotonic() >= end:
                answer = {"fault": LATE}
            else:
                num_given += at >= 0
                answer = watch(job, program, at, end)
            num_hung += answer.get("fault") in (HUNG, STUCK)
            os.write(told, json.dumps(answer).encode() + b"\n")
            if at == -1 and "fault" in answer:
                break
        leave(job["num_cases"] - num_given, end)


def watch(job: dict[str, Any], program: str, at: int, end: float) -> dict[str, str]:
    """What a case came to, in a process of its own, before its time or everybody's was over."""
    (said, notify), (read, write), (known, know) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        given = receive() if at >= 0 else None
        os.write(know, b".")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setsid()
        most = math.ceil(job["case_seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
        os.dup2(write, 2)
        os.dup2(notify, ANSWER if job["calls"] else 1)
        os.closerange(ANSWER + 1 if job["calls"] else ANSWER, 256)
        os._exit(play(job, program, given))
    for descriptor in (notify, write, know):
        os.close(descriptor)
    if not has_input(known, end):
        os._exit(1)  # what is left of the stream may begin anywhere
    own_end = time.monotonic() + PATIENCE * job["case_seconds"]
    out, err, fault = drain(said, read, min(own_end, end), job["case_bytes"])
    if fault == STUCK and end < own_end:
        fault = LATE
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(said)
    os.close(read)
    if not fault and code == -signal.SIGXCPU:
        fault = HUNG
    if not fault and code != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        fault = lines[-1][:TAIL] if lines else f"exit code {code}"
    return {"fault": fault} if fault else {"out": out.decode("utf-8", "replace")}


def drain(said: int, read: int, end: float, most: int) -> tuple[bytes, bytes, str]:
    """All that comes out of two pipes, until both are closed or a limit is met."""
    parts: dict[int, bytearray] = {said: bytearray(), read: bytearray()}
    left = [said, read]
    fault = ""
    while left and not fault:
        ready, _, _ = select.select(left, [], [], max(0.0, end - time.monotonic()))
        if not ready:
            fault = STUCK
        for one in ready:
            piece = os.read(one, 65536)
            parts[one] += piece
            if not piece:
                left.remove(one)
            elif len(parts[one]) > most:
                fault = "too much output"
    return bytes(parts[said]), bytes(parts[read]), fault


def has_input(known: int, end: float) -> bool:
    """Wait until a case has read its input; whether it has, before the end."""
    ready, _, _ = select.select([known], [], [], max(0.0, end - time.monotonic()))
    found = os.read(known, 1) if ready else b""
    os.close(known)
    return bool(found)


def receive() -> bytes:
    """The next input of the stream, in the process of its case."""
    return exactly(int.from_bytes(exactly(8), "big"))


def exactly(size: int) -> bytes:
    """So many bytes of stdin, and none of what follows."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def leave(num_inputs: int, end: float) -> None:
    """Pass over inputs that no case has read, in a process that ends with them."""
    if num_inputs and time.monotonic() < end:
        child = os.fork()
        if child == 0:
            for _ in range(num_inputs):
                receive()
            os._exit(0)
        os.waitpid(child, 0)


def play(job: dict[str, Any], program: str, given: bytes | None) -> int:
    """The case itself, in the child. What it gives is an exit code."""
    try:
        if job["calls"]:
            os.write(ANSWER, call(job, program, given).encode())
        else:
            run(program, given)
            finish()
    except SystemExit as error:
        if job["calls"]:
            return tell("SystemExit")
        finish()
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its answer
        return tell(f"{type(error).__name__}: {error}{where(error)}")
    return 0


def run(program: str, given: bytes | None) -> None:
    """A program on a case's input; without one, whether it can be built at all."""
    code = compile(program, NAME, "exec", dont_inherit=True)
    if given is not None:
        become_stdin(given)
        exec(code, {"__name__": "__main__"})  # noqa: S102


def become_stdin(given: bytes) -> None:
    """Have an input to read, as a file that has a size and no name."""
    file = os.open(".", os.O_TMPFILE | os.O_RDWR)
    left = memoryview(given)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)


def call(job: dict[str, Any], program: str, given: bytes | None) -> str:
    """A call of a function; without one, whether there is such a function."""
    name = job["function"]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    space: dict[str, Any] = {"__name__": "solution"}
    exec(job["setup"], space)  # noqa: S102
    exec(compile(program, NAME, "exec", dont_inherit=True), space)  # noqa: S102
    if name not in space and "Solution" in space:
        space[name] = getattr(space["Solution"](), name)
    if not callable(space.get(name)):
        raise NameError(f"there is no function called {name}")  # noqa: TRY004
    if given is None:
        return str(wire.encode(None))
    exec(job["fixture"], space)  # noqa: S102
    return str(wire.encode(eval(given.decode(), space)))  # noqa: S307


def finish() -> None:
    """What Python does when a program has come to its end."""
    threads = sys.modules.get("threading")
    for thread in threads.enumerate() if threads else ():
        if thread is not threads.current_thread() and not thread.daemon:  # type: ignore[union-attr]
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()


def where(error: BaseException) -> str:
    """The line of the program that an error comes from, if it has not said so."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == NAME]
    return f" (line {lines[-1]})" if lines else ""


def tell(what: str) -> int:
    """Say on stderr, in one line, what went wrong."""
    os.write(2, ("\n" + " ".join(what.split()))[:TAIL].encode(errors="replace"))
    return 1


main()
