"""Grade programs: compare their answers, outside the sandbox, with values they never see.

A solution cannot fake its result. Answers arrive as plain data and are compared by trusted code. An
early exit omits answers; anything else that a program prints or writes is ignored. An answer that
cannot be parsed or compared is wrong, and never a failure of the grader. Checks that are code of a
dataset run in a separate sandbox, on a table of the answers.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.datasets.wire_values import parse, same
from pettingllms.envs.tasks.code.run import Answer, Clock, Ran, room_for, run_all, run_inside
from pettingllms.sandbox import Limits

DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
CLOSE = 1e-6
"""Tolerance for decimals in outputs."""
MAX_ASKED = 8
"""Maximum number of times that checks may request answers the known solution did not need."""


@dataclass(frozen=True, slots=True)
class Result:
    """A test and a program's result on it."""

    case: Case
    passed: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class Grade:
    """Results of a program on some tests."""

    fault: str = ""
    """Why the program could not be built, if so."""
    results: tuple[Result, ...] = ()

    @property
    def share(self) -> float:
        """Share of the tests that passed; 0 without tests."""
        return sum(result.passed for result in self.results) / max(1, len(self.results))

    @property
    def all_passed(self) -> bool:
        """Whether the program could be built and no test failed."""
        return not self.fault and all(result.passed for result in self.results)


def grade(problem: CodeProblem, program: str, cases: Sequence[Case], clock: Clock) -> Grade:
    """Grade a program on these tests."""
    return grade_all(problem, [program], cases, clock)[0]


def grade_all(
    problem: CodeProblem, programs: Sequence[str], cases: Sequence[Case], clock: Clock
) -> tuple[Grade, ...]:
    """Grade several programs on the same tests, in one sandbox."""
    room = room_for([max(case.expected, case.also, key=len) for case in cases])
    ran = run_all(problem, programs, [case.given for case in cases], clock, room)
    return tuple(_graded(problem, one, cases) for one in ran)


def _graded(problem: CodeProblem, ran: Ran, cases: Sequence[Case]) -> Grade:
    if ran.fault:
        return Grade(ran.fault)
    pairs = zip(cases, ran.answers, strict=True)
    return Grade("", tuple(Result(c, passes(problem, c, a), a) for c, a in pairs))


def solves(problem: CodeProblem, program: str, clock: Clock) -> bool:
    """Whether a program passes every test of a problem, including hidden tests and checks."""
    everything = grade(problem, program, (*problem.visible, *problem.hidden), clock)
    return everything.all_passed and (not problem.checks or passes_checks(problem, program, clock))


def passes(problem: CodeProblem, case: Case, answer: Answer) -> bool:
    """Whether an answer matches what a test expects."""
    if answer.fault:
        return False
    if not problem.function:
        return same_output(answer.out, case.expected)
    wanted = [parse(text) for text in (case.expected, case.also) if text]
    try:
        got = parse(answer.out)
        return any(same(got, want, problem.loose) for want in wanted)
    except Exception:  # noqa: BLE001 - the test was read, so it is the answer that cannot be
        return False


def same_output(got: str, want: str) -> bool:
    """Whether two outputs have the same lines, ignoring trailing space and small differences of
    decimals."""
    got_lines, want_lines = _lines(got), _lines(want)
    if len(got_lines) != len(want_lines):
        return False
    return all(g == w or _same_words(g, w) for g, w in zip(got_lines, want_lines, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_words(got: str, want: str) -> bool:
    got_words, want_words = got.split(), want.split()
    if len(got_words) != len(want_words):
        return False
    return all(g == w or _near(g, w) for g, w in zip(got_words, want_words, strict=True))


def _near(got: str, want: str) -> bool:
    if not DECIMAL.fullmatch(want) or not NUMBER.fullmatch(got):
        return False
    return math.isclose(float(got), float(want), rel_tol=CLOSE, abs_tol=CLOSE)


def passes_checks(problem: CodeProblem, program: str, clock: Clock) -> bool:
    """Whether every check of a problem holds for a program."""
    asked = _asked_by(problem, clock)
    answers: dict[str, tuple[str, str]] = {}
    for _ in range(MAX_ASKED):
        (ran,) = run_all(problem, [program], asked, clock)
        if ran.fault:
            return False
        answers |= {call: (a.out, a.fault) for call, a in zip(asked, ran.answers, strict=True)}
        verdicts, asked = _check(problem, answers, "", clock)
        if "asks" not in verdicts or not asked:
            return bool(verdicts) and set(verdicts) == {"yes"}
    return False


@lru_cache(maxsize=4096)
def _asked_by(problem: CodeProblem, clock: Clock) -> tuple[str, ...]:
    """The calls that the checks make to a known solution."""
    return _check(problem, {}, problem.good[0] if problem.good else "", clock)[1]


def _check(
    problem: CodeProblem, answers: dict[str, tuple[str, str]], solution: str, clock: Clock
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The verdicts of the checks, and the calls whose answers they still need."""
    job = {
        "function": problem.function,
        "setup": problem.setup,
        "fixture": problem.fixture,
        "checks": problem.checks,
        "answers": answers,
        "solution": solution,
    }
    outcome = run_inside("checker", job, Limits(seconds=clock.total_seconds, output_kb=1024))
    try:
        report = json.loads(outcome.stdout)
    except ValueError:
        return (), ()
    return tuple(report["verdicts"]), tuple(report["asked"])
