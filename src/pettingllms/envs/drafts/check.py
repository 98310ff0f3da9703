"""Check a drafted environment against the contract, in a sandboxed process."""

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.envs.contract_faults import Fault
from pettingllms.errors import SandboxError
from pettingllms.grading.grader import ONE_THREAD, missing_isolation

MAX_SOURCE = 60_000
"""Bytes of a draft: less than the pipe to its process holds, so writing never waits."""
MAX_REPORT = 1 << 20
MAX_FAULTS, MAX_DETAIL = 32, 2000
START_SECONDS = 60.0
"""Time to load the modules that a draft may import, on a busy machine."""
MEMORY_MB = 2048
ROOT = str(Path(__file__).parents[3])
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pettingllms.envs.drafts.child import serve; "
    "serve(*map(int, sys.argv[2:]))"
)


@dataclass(frozen=True, slots=True)
class DraftReport:
    """What the process of a draft reported. All of it is text that the draft may have written."""

    class_name: str = ""
    env_id: str = ""
    roles: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


def check_draft(source: str, num_episodes: int = 8, seconds: int = 60) -> DraftReport:
    """Run the contract's checks on the source code of a draft, within CPU seconds.

    Raise SandboxError if this machine cannot sandbox a process: drafts run nowhere else."""
    if why := missing_isolation():
        raise SandboxError(
            f"a draft is checked in a sandbox, which does not work here: {why}; use Linux 5.13 or "
            "later with Landlock and allow user namespaces"
        )
    if len(data := source.encode(errors="replace")) > MAX_SOURCE:
        return _failed("too-long", f"the draft has {len(data)} bytes; at most {MAX_SOURCE} allowed")
    limits = (str(num_episodes), str(seconds), str(MEMORY_MB))
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
        [sys.executable, "-I", "-c", BOOT, ROOT, *limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ONE_THREAD,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        process.stdin.write(data)
        process.stdin.close()
        text = _read(process, START_SECONDS + 2 * seconds)
    finally:
        process.kill()
        process.wait()
    if not text.endswith(b"\n"):
        return _failed(
            "no-report",
            f"the checks did not finish: the draft took more than {seconds} s of CPU time or "
            f"{MEMORY_MB} MB of memory, or ended its process",
        )
    return _parsed(text)


def _read(process: "subprocess.Popen[bytes]", seconds: float) -> bytes:
    """The output of the process, until it ends, writes too much, or the time is over."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    found, stream, deadline = b"", process.stdout.fileno(), time.monotonic() + seconds
    with process.stdout:
        while len(found) <= MAX_REPORT and (left := deadline - time.monotonic()) > 0:
            if not select.select([stream], [], [], left)[0]:
                break
            part = os.read(stream, 1 << 16)
            if not part:
                break
            found += part
    return found


def _parsed(text: bytes) -> DraftReport:
    """The report of a process, which the draft may have written."""
    try:
        found: Any = json.loads(text)
        name, faults = str(found["class"]), found["faults"][:MAX_FAULTS]
        report = DraftReport(
            name,
            _plain(found["id"]),
            tuple(map(_plain, found["roles"][:64])),
            tuple(Fault(_plain(fault), _plain(detail)) for fault, detail in faults),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        report = NOT_VALID
    is_named = report.class_name.isidentifier()  # it goes into source code
    return report if is_named or (report.faults and not report.class_name) else NOT_VALID


def _plain(text: object) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in str(text))[:MAX_DETAIL]


def _failed(name: str, detail: str) -> DraftReport:
    return DraftReport(faults=(Fault(name, detail),))


NOT_VALID = _failed("no-report", "the process of the draft sent no valid report")
