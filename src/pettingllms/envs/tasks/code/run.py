"""Run programs of models and datasets in the sandbox: sources and inputs in, answers out.

One sandbox serves all cases of all programs of a job. Expected values stay outside. Inputs are
streamed in, and each case's process reads only its own input.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice

from pettingllms.datasets.code_problems import CodeProblem
from pettingllms.envs.toolkit.sandboxed import run_sandboxed
from pettingllms.sandbox import Limits, Outcome, python

START_SECONDS = 2.0
"""Extra time of a sandbox for its start and end."""
DISK_MB = 16
"""Disk space of a sandbox, in addition to the largest input."""
CASE_KB = 256
"""Output limit of one case, unless more is expected."""
SPARE = 4
"""Output may be this many times as long as expected: decimals with more digits are correct too."""
KEPT_KB = 1024
"""Runs with a larger expected output are not cached."""
NO_ANSWER = "no answer"
"""Fault of a case that the run did not reach."""
BY_CLOCK = {NO_ANSWER, "out of time", "too slow"}
"""Faults that depend on timing and may differ in another run."""
UNKNOWN = {NO_ANSWER, "out of time", "not tried"}
"""Faults that leave open whether the program solves the case."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one case: what was written or returned, or the fault."""

    out: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """Results of a program on all cases. There are no answers if it could not be built."""

    fault: str = ""
    """Why the program could not be built, if so."""
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time limits of programs."""

    case_seconds: float = 2.0
    """CPU seconds per case."""
    total_seconds: float = 8.0
    """Wall-clock seconds for all cases of all programs of a job."""


@dataclass(frozen=True, slots=True)
class Room:
    """Output limits of programs."""

    case_kb: int = CASE_KB
    """Kilobytes per case."""
    more_kb: int = 0
    """Kilobytes for all cases of a program, in addition to the default."""


def room_for(expected: Sequence[str]) -> Room:
    """Output limits for these expected outputs, with some slack."""
    largest = max((len(_bytes(text)) for text in expected), default=0)
    encoded = sum(len(json.dumps(text)) for text in expected)
    return Room(max(CASE_KB, SPARE * largest // 1024 + 1), SPARE * encoded // 1024)


NO_MORE = Room()


class _ByClock(Exception):  # noqa: N818 - a result that depends on timing, not an error
    def __init__(self, ran: tuple[Ran, ...]) -> None:
        super().__init__()
        self.ran = ran


def run_all(
    problem: CodeProblem,
    programs: Sequence[str],
    givens: Sequence[str],
    clock: Clock,
    room: Room = NO_MORE,
) -> tuple[Ran, ...]:
    """Run every program on every input, in one sandbox. Runs are cached, unless their result
    depends on timing."""
    run = _run_all if room.more_kb <= KEPT_KB else _run_all.__wrapped__
    code = (problem.function, problem.setup, problem.fixture)
    try:
        return run(*code, tuple(programs), tuple(givens), clock, room)
    except _ByClock as end:
        return end.ran


@lru_cache(maxsize=1024)
def _run_all(
    function: str,
    setup: str,
    fixture: str,
    programs: tuple[str, ...],
    givens: tuple[str, ...],
    clock: Clock,
    room: Room,
) -> tuple[Ran, ...]:
    job = {
        "calls": bool(function),
        "function": function,
        "setup": setup,
        "fixture": fixture,
        "programs": programs,
        "num_cases": len(givens),
        "case_seconds": clock.case_seconds,
        "total_seconds": clock.total_seconds,
        "case_bytes": room.case_kb * 1024,
    }
    inputs = [_bytes(text) for text in givens]
    always = 64 + 2 * CASE_KB * max(1, min(16, len(programs) * len(givens)))
    limits = Limits(
        seconds=clock.total_seconds + START_SECONDS,
        disk_mb=DISK_MB + (max(map(len, inputs), default=0) >> 20),
        output_kb=always + len(programs) * room.more_kb,
    )
    stream = b"".join(len(one).to_bytes(8, "big") + one for one in inputs) * len(programs)
    lines_out = iter(_lines(run_inside("driver", job, limits, stream)))
    ran = tuple(_ran(lines_out, len(givens)) for _ in programs)
    if any(BY_CLOCK & {one.fault, *(answer.fault for answer in one.answers)} for one in ran):
        raise _ByClock(ran)
    return ran


def run_inside(name: str, job: object, limits: Limits, stdin: bytes = b"") -> Outcome:
    """Run one of our driver programs in the sandbox on a job."""
    wire = {"wire.py": _source("pettingllms.datasets", "wire")}
    sent = {"job.json": json.dumps(job).encode(), **wire}
    program = python(_source("pettingllms.envs.tasks.code.inside", name).decode(), files=sent)
    return run_sandboxed(replace(program, stdin=stdin), limits)


@cache
def _source(package: str, name: str) -> bytes:
    return files(package).joinpath(f"{name}.py").read_bytes()


def _ran(lines_out: Iterator[object], num_cases: int) -> Ran:
    first = _answer(next(lines_out, None))
    if first.fault:
        return Ran(first.fault)
    lines = list(islice(lines_out, num_cases))
    lines += [None] * (num_cases - len(lines))
    return Ran("", tuple(map(_answer, lines)))


def _lines(outcome: Outcome) -> list[object]:
    """The driver's output, line by line. Parsing stops at the first invalid line: the source of
    anything after it is unknown."""
    lines: list[object] = []
    for line in outcome.stdout.splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return lines


def _answer(line: object) -> Answer:
    if not isinstance(line, dict):
        return Answer(fault=NO_ANSWER)
    out, fault = line.get("out"), line.get("fault")
    if isinstance(out, str) and fault is None:
        return Answer(out)
    return Answer(fault=fault or NO_ANSWER) if isinstance(fault, str) else Answer(fault=NO_ANSWER)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
