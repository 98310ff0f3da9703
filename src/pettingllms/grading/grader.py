"""Grades answers in a pool of sandboxed worker processes.

Answers that are too long, too deeply nested or unprintable are rejected here, deterministically.
All others go to a worker. An answer that exceeds its CPU time is wrong: no answer may void its
grade. If a worker process ends on an answer or does not reply, a fresh worker retries it. If that
one fails too, a known correct answer determines the cause: if it is graded, the other answer is
wrong; if not, the grader has failed.

Workers run in the sandbox. On machines without one, grading raises an error unless
PETTINGLLMS_GRADER is `unconfined`: parsing is not execution, but the algebra system is large, and
model-generated text reaches deep into it.
"""

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.errors import GraderError
from pettingllms.runtime.call_clock import pause_call_clock
from pettingllms.runtime.resources import num_cores
from pettingllms.types import Failed, Reward, Scored

SECONDS = 3.0
"""CPU seconds to grade one answer."""
MEMORY_MB = 512
"""Memory for one answer beyond that of math-verify."""
MAX_LETTERS = 1000
MAX_DEPTH = 16
KNOWN = ("\\frac{6}{4}", "1.5")
"""A correct answer that a working grader grades at once."""
NUM_KEPT = 4096
"""Size of the verdict cache: replies to one problem often repeat."""
START_SECONDS = 600.0
NUM_TRIES = 2
"""Worker processes that may end on an answer before the answer counts as the cause."""
MAX_STRETCH = 10
"""Wall-clock limit of a worker, as a multiple of its CPU limit."""
VARIABLE = "PETTINGLLMS_GRADER"
UNCONFINED = "unconfined"
ROOT = str(Path(__file__).parents[2])
ONE_THREAD = dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""All that a worker has in its environment until its doors close: a process with threads has more
than one way out of a namespace, and the kernel makes it none."""
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from pettingllms.grading.worker import serve; "
    "serve(float(sys.argv[2]), int(sys.argv[3]), confined=sys.argv[4] == 'True')"
)
TRY = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from pettingllms.grading.isolation import attempt; attempt()"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for an answer: correct or not, or why the grader failed."""

    right: bool = False
    refusal: str | None = None
    """Why grading of the answer was cut; the answer then counts as wrong."""
    failure: str | None = None
    """Why there is no verdict: a fault of the grader that no answer can provoke."""

    def reward(self, right: float = 1.0, wrong: float = 0.0) -> Reward:
        """The reward for a verdict, or a failure of the judge without one."""
        if self.failure is not None:
            return Failed(f"no verdict on an answer: {self.failure}", "judge")
        return Scored(right if self.right else wrong)


NO_VERDICT = Verdict()
"""Verdict of an answer that was not graded."""


def refusal(answer: str) -> str | None:
    """Why an answer is rejected without a worker; empty if it is not."""
    if not answer.strip():
        return "it is empty"
    if len(answer) > MAX_LETTERS:
        return f"it has {len(answer)} letters, and more than {MAX_LETTERS} are no answer"
    if not all(sign.isprintable() or sign in "\n\t" for sign in answer):
        return "it has signs that cannot be printed"
    depth = deepest = 0
    for sign in answer:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    return f"it is nested {deepest} deep" if deepest > MAX_DEPTH else None


def check_installed() -> None:
    """Raise GraderError if math-verify or the sandbox is missing."""
    if find_spec("math_verify") is None:
        raise GraderError(
            "grading math answers needs math-verify, which is not installed; "
            "pip install 'pettingllms[math]'"
        )
    if is_confined() and (why := missing_isolation()):
        raise GraderError(
            f"math answers are graded in a sandbox, which does not work here: {why}; use Linux "
            "5.13 or later with Landlock and allow user namespaces (in docker --security-opt "
            f"seccomp=unconfined), or set {VARIABLE}={UNCONFINED} to grade with limits on only "
            "time and memory"
        )


def is_confined() -> bool:
    """Whether workers are sandboxed: always, unless the environment variable disables it."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", UNCONFINED):
        raise GraderError(f"{VARIABLE} is '{wanted}'; it can be '{UNCONFINED}', or not set")
    return not wanted


@cache
def missing_isolation() -> str:
    """Why workers cannot be sandboxed here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "the sandbox requires Linux"
    command = [sys.executable, "-I", "-c", TRY, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env=ONE_THREAD, check=False)  # noqa: S603 - our own
    return "" if done.stdout == "held" else done.stderr.strip() or "the attempt printed no error"


class Worker:
    """A `pettingllms.grading.worker` process and its pipes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        limits = (str(seconds), str(MEMORY_MB), str(is_confined()))
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
            [sys.executable, "-I", "-c", BOOT, ROOT, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ONE_THREAD,
            bufsize=0,
            start_new_session=True,
        )
        self._ready = False

    def ask(self, answer: str, truth: str) -> dict[str, Any]:
        """The worker's message about an answer; GraderError if there is none."""
        if not self._ready:
            self._message(START_SECONDS)
            self._ready = True
        request = json.dumps({"answer": answer, "truth": truth}).encode() + b"\n"
        try:
            assert self._process.stdin is not None  # noqa: S101 - it is a pipe
            self._process.stdin.write(request)
        except BrokenPipeError:
            raise GraderError("the grader process has ended") from None
        return self._message(self._seconds * MAX_STRETCH)

    def end(self) -> None:
        """Kill the process and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None  # noqa: S101 - it is a pipe
            pipe.close()

    def _message(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        stream, found, deadline = self._process.stdout.fileno(), b"", time.monotonic() + seconds
        while not found.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise GraderError(f"the grader's process did not reply for {seconds:g} s")
            part = os.read(stream, 4096)
            if not part:
                raise GraderError("the grader's process ended")
            found += part
        message: dict[str, Any] = json.loads(found)
        return message


class Grader:
    """A thread-safe pool of workers."""

    def __init__(self, num_workers: int = 0, seconds: float = SECONDS) -> None:
        check_installed()
        self._seconds = seconds
        self._idle = queue.Queue[Worker | None]()
        for _ in range(num_workers or min(4, num_cores())):
            self._idle.put(None)
        self._kept: OrderedDict[tuple[str, str], Verdict] = OrderedDict()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start all workers that are not running, without waiting for them."""
        for _ in range(self._idle.qsize()):
            with suppress(queue.Empty):
                self._idle.put(self._idle.get_nowait() or Worker(self._seconds))

    def grade(self, answer: str, truth: str) -> Verdict:
        """The verdict on an answer, given the correct one."""
        why = refusal(answer)
        if why is not None:
            return Verdict(refusal=why)
        if answer == truth:
            return Verdict(right=True)
        kept = self._kept.get((answer, truth))
        if kept is not None:
            return kept
        verdict = self._verdict(answer, truth)
        if verdict.failure is not None:
            return verdict
        with self._lock:
            self._kept[answer, truth] = verdict
            while len(self._kept) > NUM_KEPT:
                self._kept.popitem(last=False)
        return verdict

    def close(self) -> None:
        """Stop idle workers."""
        while not self._idle.empty():
            worker = self._idle.get()
            if worker is not None:
                worker.end()

    @pause_call_clock()
    def _verdict(self, answer: str, truth: str) -> Verdict:
        """A worker's verdict. If two workers end on an answer, it is wrong, unless a known correct
        answer cannot be graded either."""
        for _ in range(NUM_TRIES):
            message = self._ask(answer, truth)
            if "right" in message:
                return Verdict(right=bool(message["right"]))
            if "cut" in message:
                return Verdict(refusal=str(message["cut"]))
        why = str(message["ended"])
        if self._ask(*KNOWN).get("right"):
            return Verdict(refusal=f"{why}, {NUM_TRIES} times, and the next answer was read")
        return Verdict(failure=why)

    def _ask(self, answer: str, truth: str) -> dict[str, Any]:
        """The message of the next worker, or how its process ended. A worker that is interrupted is
        replaced."""
        worker, sound = self._idle.get(), False
        try:
            worker = worker or Worker(self._seconds)
            message = worker.ask(answer, truth)
            sound = True
        except GraderError as error:
            message = {"ended": str(error)}
        finally:
            if not sound and worker is not None:
                worker.end()
            self._idle.put(worker if sound else None)
        return message


@cache
def _grader_of(_process: int) -> Grader:
    """The pool of this process: pipes do not survive a fork."""
    import atexit

    grader = Grader()
    atexit.register(grader.close)
    return grader


def grade(answer: str, truth: str) -> Verdict:
    """The verdict on an answer, from the pool of this process."""
    return _grader_of(os.getpid()).grade(answer, truth)


def start_grader() -> None:
    """Start the pool before the first answer: math-verify takes a second to load."""
    _grader_of(os.getpid()).start()
