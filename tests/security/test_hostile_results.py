"""No result of a program and no answer gains over an honest wrong one, whatever it is.

Each is graded as wrong: never right, never a failure of the grader, at a bounded cost. Fast tests
draw a part; `-m slow` draws the rest.
"""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from hostile_results import (
    ANSWERS,
    BOMBS,
    LONG_TEXTS,
    OUTPUTS,
    PROGRAM,
    RESULTS,
    SECRET,
    WANTED,
    WRITTEN,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.datasets.wire import encode
from pettingllms.envs.tasks.code.grade import grade, passes, solves
from pettingllms.envs.tasks.code.prompts import value_text
from pettingllms.envs.tasks.code.run import Answer, Clock
from pettingllms.types import Scored

CALLS = CodeProblem("result", "", "result")
LOOSE = CodeProblem("result", "", "result", loose=True)
CASES = [Case("result()", encode(value)) for value in WANTED]
CLOCK = Clock(case_seconds=4, total_seconds=120)
TEXT_SECONDS = 10.0
"""Processor time for a quarter of a megabyte, graded against every value, twice, and shown."""


def check_wrong(text: str) -> None:
    start = time.process_time()
    for problem in (CALLS, LOOSE):
        assert not any(passes(problem, case, Answer(text)) for case in CASES)
    value_text(text).encode()
    assert time.process_time() - start < TEXT_SECONDS


def drawn(strategy: st.SearchStrategy[str], num: int, check: Callable[[str], None]) -> None:
    """Check so many examples, the same ones every time."""
    seen: set[str] = set()

    @settings(
        max_examples=num,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attack(text: str) -> None:
        seen.add(text)
        check(text)

    attack()
    assert len(seen) > num / 2, "most of them differ"


def test_nothing_that_is_written_for_a_value_is_taken_for_one() -> None:
    drawn(WRITTEN, 500, check_wrong)


@pytest.mark.slow
def test_nothing_that_is_written_for_a_value_is_taken_for_one_in_many_more() -> None:
    drawn(st.tuples(st.just(" "), WRITTEN).map("".join), 4000, check_wrong)


@pytest.mark.parametrize("at", range(len(LONG_TEXTS)))
def test_a_long_value_costs_little_and_is_wrong(at: int) -> None:
    check_wrong(LONG_TEXTS[at])


def test_no_result_of_a_function_is_right_or_void() -> None:
    """All of them as cases of one program, in one sandbox; a real one for the control."""
    program = f"RESULTS = {RESULTS!r}\n{PROGRAM}"
    assert len(RESULTS) >= 100
    for first in range(0, len(RESULTS), 40):
        numbers = range(first, min(first + 40, len(RESULTS)))
        cases = [Case(f"result({at})", encode(SECRET)) for at in numbers]
        found = grade(CALLS, program, cases, CLOCK)
        assert not found.fault
        assert [
            RESULTS[at] for at, one in zip(numbers, found.results, strict=True) if one.passed
        ] == []
        for result in found.results:
            value_text(result.answer.out).encode()
    control = program.replace("return eval(RESULTS[at], globals())", f"return {SECRET}")
    assert grade(CALLS, control, cases, CLOCK).all_passed


def test_no_output_of_a_program_is_right_or_void() -> None:
    program = f"import sys\nat = int(input())\nsys.stdout.buffer.write(({', '.join(OUTPUTS)},)[at]"
    program += ".encode('utf-8', 'surrogatepass'))"
    stdin = CodeProblem("print", "")
    cases = [Case(f"{at}\n", f"{SECRET}.5") for at in range(len(OUTPUTS))]
    start = time.process_time()
    found = grade(stdin, program, cases, CLOCK)
    assert not found.fault
    assert not any(result.passed for result in found.results)
    assert not any(result.answer.fault for result in found.results)
    assert time.process_time() - start < 10


def test_checks_of_a_data_set_find_no_hostile_result_right() -> None:
    """They run on a table of the answers, in a sandbox: what they do with one is bounded there."""
    checks = (f"assert result(0) == {SECRET}", f"assert result(0) in [{SECRET}]")
    good = f"def result(at):\n    return {SECRET}"
    problem = CodeProblem("result", "", "result", checks=checks, good=(good,))
    clock = Clock(case_seconds=2, total_seconds=6)
    assert solves(problem, good, clock)
    hostile = [
        "{k * (2**61 - 1) for k in range(9000)}",
        "setattr(wire, '_plain', lambda _: {'complex': [10**400, 0]})",
        "Equal()",
        "os._exit(0)",
    ]
    for expression in hostile:
        assert not solves(problem, f"RESULTS = [{expression!r}]\n{PROGRAM}", clock)


@pytest.fixture(scope="module")
def check_answer() -> Iterator[Callable[[str], None]]:
    pytest.importorskip("math_verify", reason="needs the extra `math`")
    from pettingllms.grading import Grader

    grader = Grader(num_workers=1, seconds=0.5)

    def check(answer: str) -> None:
        for truth in (str(SECRET), f"\\frac{{{SECRET}}}{{7}}"):
            verdict = grader.grade(answer, truth)
            assert verdict.reward(1.0, -0.25) == Scored(-0.25), (answer, verdict)

    yield check
    grader.close()


@pytest.mark.parametrize("at", range(len(BOMBS)))
def test_no_answer_that_takes_forever_is_right_or_void(
    at: int, check_answer: Callable[[str], None]
) -> None:
    check_answer(BOMBS[at])


def test_no_answer_is_right_or_void(check_answer: Callable[[str], None]) -> None:
    drawn(ANSWERS, 60, check_answer)


@pytest.mark.slow
def test_no_answer_is_right_or_void_in_many_more(check_answer: Callable[[str], None]) -> None:
    drawn(ANSWERS.map(lambda answer: f"{answer} "), 700, check_answer)
    drawn(st.tuples(st.sampled_from(BOMBS), ANSWERS).map("+".join), 40, check_answer)


def test_the_corpus_holds_no_secret() -> None:
    texts = [*LONG_TEXTS, *RESULTS, *OUTPUTS, *BOMBS, PROGRAM]
    assert not any(str(SECRET) in text for text in texts)
    assert all(json.loads(case.expected) is not None for case in CASES)
