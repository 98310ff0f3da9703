"""Prompts of coder and tester: their instructions, the problem, each other's work, and the
results."""

from dataclasses import dataclass

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.datasets.wire_values import parse, text_of
from pettingllms.envs.tasks.code.grade import Grade, Result
from pettingllms.envs.tasks.code.replies import KEEP, shown
from pettingllms.envs.toolkit.answers import HOW_TO_ANSWER

CODER, TESTER, SOLVER = "coder", "tester", "solver"
MAX_SHOWN = 4
"""Number of failed tests that a prompt shows in full."""


@dataclass(frozen=True, slots=True)
class Work:
    """A problem, the program and tests in force, and their results."""

    problem: CodeProblem
    turn: str
    """The acting role."""
    round: int = 1
    program: str | None = None
    tests: tuple[Case, ...] = ()
    """The tester's tests in force."""
    grade: Grade | None = None
    """Results of the program on the visible tests, then on the tester's."""
    refusals: tuple[tuple[str, str], ...] = ()
    """Roles whose last reply was invalid, each with the reason."""
    program_score: float = 0.0
    """Score of the program on the visible tests."""
    tests_score: float | None = 0.0
    """Quality of the tests; None if it is unknown."""
    over: bool = False
    solved: bool = False


def part_text(role: str, calls: bool, max_rounds: int, max_tests: int) -> str:
    """The role's instructions and the format of its answer."""
    rounds = f"There are up to {max_rounds} rounds"
    program = "a Python function" if calls else "a Python program that reads stdin, writes stdout"
    how = (
        f"Answer {program}, whole, with the standard library alone, or {KEEP} to leave your last "
        "one as it is. It is run in a sandbox, with little time for each test."
    )
    if role == SOLVER:
        return (
            f"You write {program}. It must pass hidden tests. {rounds}, in each of which you see "
            f"what your last one made of the visible tests. {how} {HOW_TO_ANSWER}"
        )
    if role == CODER:
        return (
            f"You are the coder: you write {program}, and a tester writes tests for it. Hidden "
            f"tests decide in the end whether it is right. {rounds}: the tester speaks, then you; "
            "all is over when your program passes the visible tests and the tester's. A tester "
            f"may be wrong. {how} {HOW_TO_ANSWER}"
        )
    form = (
        "one a line, as `name(arguments) == value` with plain values"
        if calls
        else "each as a line `input:`, the lines to read, a line `output:`, the lines to write"
    )
    return (
        "You are the tester: a coder writes a program for a problem, and you write tests that a "
        "right program passes and a wrong one fails: the usual mistakes, the edges. Hidden tests "
        f"decide in the end whether the program is right. {rounds}: you speak, then the coder, who "
        f"sees your tests and the results. Answer 1 to {max_tests} tests, {form}; they take the "
        f"place of your last ones. Do not repeat visible tests. {HOW_TO_ANSWER}"
    )


def story_text(work: Work, role: str, max_rounds: int) -> str:
    """The problem and the current state of the work, for a role."""
    calls = bool(work.problem.function)
    parts = [work.problem.statement, f"Round {work.round} of {max_rounds}."]
    if work.problem.visible:
        parts.append("Visible tests:\n" + _tests(work.problem.visible, calls))
    if work.program is not None:
        whose = "The coder's program" if role == TESTER else "Your program"
        parts.append(f"{whose}:\n{work.program}")
    if work.tests:
        whose = "Your tests" if role == TESTER else "The tester's tests"
        parts.append(f"{whose}:\n{_tests(work.tests, calls)}")
    if work.grade is not None:
        parts.append(_results(work.grade, calls))
    parts += [_rejection(who, why, role) for who, why in work.refusals]
    return "\n\n".join(parts)


def terse_text(work: Work, role: str) -> str:
    """A minimal version of the same prompt."""
    lines = [f"{role} {work.round}", work.problem.statement]
    if work.program is not None:
        lines.append(work.program)
    if work.tests:
        lines.append(_tests(work.tests, bool(work.problem.function)))
    if work.grade is not None:
        lines.append(f"passed {sum(r.passed for r in work.grade.results)}")
    return "\n".join(lines + ["refused" for _ in work.refusals])


def _rejection(who: str, why: str, role: str) -> str:
    whose = "Your" if who == role else f"The {who}'s"
    return f"{whose} last reply was refused: {shown(why, 1)}."


def _tests(cases: tuple[Case, ...], calls: bool) -> str:
    return "\n".join(shown(case.describe(calls), num_lines=40) for case in cases)


def _results(grade: Grade, calls: bool) -> str:
    if grade.fault:
        return f"The program could not be run: {shown(grade.fault, 1)}"
    failed = [result for result in grade.results if not result.passed]
    num_passed = len(grade.results) - len(failed)
    lines = [f"The program passes {num_passed} of {len(grade.results)} tests."]
    lines += [_failure(result, calls) for result in failed[:MAX_SHOWN]]
    return "\n".join(lines)


def _failure(result: Result, calls: bool) -> str:
    answer = result.answer
    came = value_text(answer.out) if calls else answer.out.rstrip() or "nothing"
    if answer.fault:
        came = f"no answer: {answer.fault}"
    return f"Failed: {shown(result.case.describe(calls))}\nThe program gives: {shown(came)}"


def value_text(out: str) -> str:
    """An encoded value in Python syntax."""
    try:
        return text_of(parse(out))
    except (ValueError, RecursionError):
        return "no value"
