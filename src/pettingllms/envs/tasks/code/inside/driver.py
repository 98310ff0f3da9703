"""Run programs on all cases of a problem, in one sandbox.

Each case of each program runs in a forked process: a hanging case is killed alone, and no case sees
what another left in memory. Inputs arrive on stdin in sequence, and each is read by the process of
its case. This process never reads an input, so later cases do not inherit one. It never executes
the programs. Its output is data: answers that are compared outside with values that never enter the
sandbox.
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
"""File descriptor for the answer of a called function."""
NAME = "solution.py"
PATIENCE = 4
"""Wall-clock seconds per CPU second: other work may be running."""
HUNG_TWICE = 2
"""Number of cases that may time out before a program's remaining cases are skipped."""
HUNG, STUCK, LATE, UNTRIED = "timeout", "too slow", "out of time", "not tried"
"""A case used up its CPU time; or its wall-clock time; or the time for all cases was over first;
or two other cases had timed out."""
TAIL = 400
"""Characters of an error that are reported."""


def main() -> None:
    """Run the job: print one line per program on whether it can be built, then one per case."""
    with open("job.json", encoding="utf-8") as file:  # noqa: PTH123
        job = json.load(file)
    output = os.dup(1)
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
            os.write(output, json.dumps(answer).encode() + b"\n")
            if at == -1 and "fault" in answer:
                break
        leave(job["num_cases"] - num_given, end)


def watch(job: dict[str, Any], program: str, at: int, end: float) -> dict[str, str]:
    """The result of a case, run in a forked process until its limit or the limit of the job."""
    (answers, answer_end), (read, write), (known, know) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        given = receive() if at >= 0 else None
        os.write(know, b".")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.setsid()
        most = math.ceil(job["case_seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
        os.dup2(write, 2)
        os.dup2(answer_end, ANSWER if job["calls"] else 1)
        os.closerange(ANSWER + 1 if job["calls"] else ANSWER, 256)
        os._exit(run_case(job, program, given))
    for descriptor in (answer_end, write, know):
        os.close(descriptor)
    if not has_input(known, end):
        os._exit(1)  # the position in the stream is unknown
    own_end = time.monotonic() + PATIENCE * job["case_seconds"]
    out, err, fault = drain(answers, read, min(own_end, end), job["case_bytes"])
    if fault == STUCK and end < own_end:
        fault = LATE
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(answers)
    os.close(read)
    if not fault and code == -signal.SIGXCPU:
        fault = HUNG
    if not fault and code != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        fault = lines[-1][:TAIL] if lines else f"exit code {code}"
    return {"fault": fault} if fault else {"out": out.decode("utf-8", "replace")}


def drain(answers: int, read: int, end: float, most: int) -> tuple[bytes, bytes, str]:
    """Read two pipes until both are closed or a limit is reached."""
    parts: dict[int, bytearray] = {answers: bytearray(), read: bytearray()}
    left = [answers, read]
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
    return bytes(parts[answers]), bytes(parts[read]), fault


def has_input(known: int, end: float) -> bool:
    """Wait until a case has read its input; return whether it did so before the end."""
    ready, _, _ = select.select([known], [], [], max(0.0, end - time.monotonic()))
    found = os.read(known, 1) if ready else b""
    os.close(known)
    return bool(found)


def receive() -> bytes:
    """The next input of the stream, in the process of its case."""
    return exactly(int.from_bytes(exactly(8), "big"))


def exactly(size: int) -> bytes:
    """Exactly this many bytes of stdin."""
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            os._exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def leave(num_inputs: int, end: float) -> None:
    """Skip inputs that no case has read, in a child process that then exits."""
    if num_inputs and time.monotonic() < end:
        child = os.fork()
        if child == 0:
            for _ in range(num_inputs):
                receive()
            os._exit(0)
        os.waitpid(child, 0)


def run_case(job: dict[str, Any], program: str, given: bytes | None) -> int:
    """Run the case in the child process; return its exit code."""
    try:
        if job["calls"]:
            os.write(ANSWER, call(job, program, given).encode())
        else:
            run(program, given)
            finish()
    except SystemExit as error:
        if job["calls"]:
            return report_fault("SystemExit")
        finish()
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - any exception is the case's result
        return report_fault(f"{type(error).__name__}: {error}{where(error)}")
    return 0


def run(program: str, given: bytes | None) -> None:
    """Run a program on a case's input; without an input, only compile it."""
    code = compile(program, NAME, "exec", dont_inherit=True)
    if given is not None:
        become_stdin(given)
        exec(code, {"__name__": "__main__"})  # noqa: S102


def become_stdin(given: bytes) -> None:
    """Make an input readable as stdin, from an unnamed file with a size."""
    file = os.open(".", os.O_TMPFILE | os.O_RDWR)
    left = memoryview(given)
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)


def call(job: dict[str, Any], program: str, given: bytes | None) -> str:
    """Call a function; without an input, only check that it exists."""
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
    """Do what Python does at the end of a program."""
    threads = sys.modules.get("threading")
    for thread in threads.enumerate() if threads else ():
        if thread is not threads.current_thread() and not thread.daemon:  # type: ignore[union-attr]
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()


def where(error: BaseException) -> str:
    """The line of the program that raised an error, if known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == NAME]
    return f" (line {lines[-1]})" if lines else ""


def report_fault(what: str) -> int:
    """Report a fault on stderr, in one line."""
    os.write(2, ("\n" + " ".join(what.split()))[:TAIL].encode(errors="replace"))
    return 1


main()
