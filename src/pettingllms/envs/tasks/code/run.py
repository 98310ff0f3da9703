"""Programs of models and of data sets, run in the sandbox: sources and inputs in, answers out.

One start serves all cases of all programs of a job. What is expected of them stays here. The input
of a case goes in as a stream, from which the case's own process takes it: no other one has it.
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
"""Of a sandbox's time, for its start and end."""
DISK_MB = 16
"""Of the disk of a sandbox, beside room for the largest input."""
CASE_KB = 256
"""Of output in one case, where no more is expected."""
SPARE = 4
"""How many times as long as expected an output may be: decimals with more digits are right too."""
KEPT_KB = 1024
"""Runs of which more is expected are not kept in memory for when they are asked for again."""
UNTOLD = "no answer"
"""Of a case that the run ended before."""
BY_CLOCK = {UNTOLD, "out of time", "too slow"}
"""Faults that may be others the next time."""
UNKNOWN = {UNTOLD, "out of time", "not tried"}
"""Faults that do not say what the program would have made of a case."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one case came to: what was written or returned, or what went wrong."""

    out: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """A program on all cases. If it could not be built there are no answers."""

    fault: str = ""
    """Why it could not be built, if so."""
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """How long programs may take."""

    case_seconds: float = 2.0
    """Of the processor's time."""
    total_seconds: float = 8.0
    """By the clock, for all cases of all programs of a job."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much programs may write."""

    case_kb: int = CASE_KB
    """In one case."""
    more_kb: int = 0
    """In all cases of a program, on top of what there is always."""


def room_for(expected: Sequence[str]) -> Room:
    """Room for whoever writes what is expected in each case, and some more."""
    largest = max((len(_bytes(text)) for text in expected), default=0)
    told = sum(len(json.dumps(text)) for text in expected)
    return Room(max(CASE_KB, SPARE * largest // 1024 + 1), SPARE * told // 1024)


NO_MORE = Room()


class _ByClock(Exception):  # noqa: N818 - an end that says nothing about the next time
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
    """Every program on every input, in one sandbox. A run is not repeated if asked for again,
    unless the clock had a part in it."""
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
    told = iter(_lines(run_inside("driver", job, limits, stream)))
    ran = tuple(_ran(told, len(givens)) for _ in programs)
    if any(BY_CLOCK & {one.fault, *(answer.fault for answer in one.answers)} for one in ran):
        raise _ByClock(ran)
    return ran


def run_inside(name: str, job: object, limits: Limits, stdin: bytes = b"") -> Outcome:
    """Run one of our own programs in the sandbox on a job."""
    wire = {"wire.py": _source("pettingllms.datasets", "wire")}
    sent = {"job.json": json.dumps(job).encode(), **wire}
    program = python(_source("pettingllms.envs.tasks.code.inside", name).decode(), files=sent)
    return run_sandboxed(replace(program, stdin=stdin), limits)


@cache
def _source(package: str, name: str) -> bytes:
    return files(package).joinpath(f"{name}.py").read_bytes()


def _ran(told: Iterator[object], num_cases: int) -> Ran:
    first = _answer(next(told, None))
    if first.fault:
        return Ran(first.fault)
    lines = list(islice(told, num_cases))
    lines += [None] * (num_cases - len(lines))
    return Ran("", tuple(map(_answer, lines)))


def _lines(outcome: Outcome) -> list[object]:
    """What the driver said, line by line. A line that is not its own ends the reading: whatever
    stands behind it could be anybody's."""
    lines: list[object] = []
    for line in outcome.stdout.splitlines():
        try:
            lines.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return lines


def _answer(line: object) -> Answer:
    if not isinstance(line, dict):
        return Answer(fault=UNTOLD)
    out, fault = line.get("out"), line.get("fault")
    if isinstance(out, str) and fault is None:
        return Answer(out)
    return Answer(fault=fault or UNTOLD) if isinstance(fault, str) else Answer(fault=UNTOLD)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
