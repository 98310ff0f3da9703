"""A coder and a tester: rewards, endings, observations, and the bundled problems."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.envs import make_env
from pettingllms.envs.tasks.code import env as env_module
from pettingllms.envs.tasks.code.grade import grade, grade_all, passes_checks, same_output, solves
from pettingllms.envs.tasks.code.problems import problems_of, shipped
from pettingllms.envs.tasks.code.replies import read_tests, shown
from pettingllms.envs.tasks.code.run import Clock, _run_all, run_all
from pettingllms.sandbox import open_sandbox
from pettingllms.types import Failed

CLOCK = Clock(case_seconds=4, total_seconds=60)
SAMPLES = Path(__file__).parents[2] / "data" / "code"
SHIPPED = {problem.name: problem for split in ("train", "test") for problem in shipped(split)}
GOOD = "def count_vowels(text):\n    return sum(c in 'aeiou' for c in text.lower())"
SMALL = "def count_vowels(text):\n    return sum(c in 'aeiou' for c in text)"


def start(**options):
    env = make_env("code-v1", **options)
    task = next(task for task in env.tasks("train") if task.id == "train-count_vowels")
    return env, env.reset(task, 0)


def notify(env, state, answer):
    (role,) = env.acting(state)
    return env.step(state, {role: f"<answer>{answer}</answer>"})


def played(env, task, player):
    state, rng, earned = env.reset(task, 0), random.Random(0), []
    while acting := env.acting(state):
        result = env.step(state, {acting[0]: env.players[player](env, state, acting[0], rng)})
        earned.append((acting[0], result.rewards))
        state = result.state
    return state, earned


@pytest.mark.parametrize("name", SHIPPED)
def test_known_good_solutions_pass_and_known_bad_ones_fail(name):
    problem = SHIPPED[name]
    assert len(problem.bad) >= 2
    assert len(problem.hidden) >= 2
    tests = (*problem.visible, *problem.hidden)
    grades = grade_all(problem, [*problem.good, *problem.bad], tests, CLOCK)
    verdicts = [grade.all_passed for grade in grades]
    assert verdicts == [True] * len(problem.good) + [False] * len(problem.bad)
    assert not any(grade.fault for grade in grades), "a known mistake is no program that cannot run"


def test_the_shipped_set_is_split_without_overlap():
    train, test = shipped("train"), shipped("test")
    assert len(train) + len(test) >= 30
    assert {p.name for p in train}.isdisjoint(p.name for p in test)
    assert {p.statement for p in train}.isdisjoint(p.statement for p in test)
    for split in (train, test):
        assert {bool(problem.function) for problem in split} == {True, False}


def test_a_file_is_split_the_same_way_each_time_and_two_files_must_not_meet(tmp_path):
    text = (SAMPLES / "mbpp.jsonl").read_text().splitlines()
    data, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    data.write_text("\n".join(text[:2]))
    other.write_text(text[2])
    assert [p.name for p in problems_of("train", str(data), str(other))] == [
        "mbpp-9001",
        "mbpp-9002",
    ]
    assert [p.name for p in problems_of("test", str(data), str(other))] == ["mbpp-9003"]
    with pytest.raises(ValueError, match="mbpp-9002 = mbpp-1"):
        make_env("code-v1", data=str(data), test_data=str(write(tmp_path, text[1])))
    row = json.loads(text[0])
    for path, sign in ((data, "+"), (other, "-")):
        path.write_text(json.dumps(row | {"text": f"Write a function to work out a {sign} b."}))
    assert problems_of("test", str(data), str(other)), "another sign asks something else"
    with pytest.raises(ValueError, match="are left; give more"):
        make_env("code-v1", data=str(other))


def write(folder, row):
    """The same statement under another name and in capitals."""
    row = json.loads(row)
    path = folder / "c.jsonl"
    path.write_text(json.dumps(row | {"task_id": 1, "text": row["text"].upper() + "!"}))
    return path


def test_the_right_team_solves_and_the_wrong_one_does_not():
    env = make_env("code-v1", max_rounds=2)
    for at in (0, 1):
        task = env.tasks("train")[at]
        state, earned = played(env, task, "right")
        assert state.solved
        assert env.success(state, "coder")
        assert [role for role, _ in earned] == ["tester", "coder"]
        assert earned[0][1].agent["tester"].value == pytest.approx(1.0)
        assert earned[1][1].process["coder"].value == pytest.approx(1.0)
        assert earned[1][1].team.value == 1
        state, earned = played(env, task, "wrong")
        assert not state.solved
        assert len(earned) == 4
        assert sum(rewards.agent["tester"].value for _, rewards in earned[::2]) == 0
        assert earned[-1][1].team.value == 0


def test_a_program_is_rewarded_for_its_improvement():
    env, state = start(max_rounds=4)
    steps = [
        ("count_vowels('OU') == 2", 0.0),
        ("def count_vowels(text)", 0.0),
        ("count_vowels('OU') == 2", 0.0),
        ("def count_vowels(text):\n    return 0", 0.2 + 0.8 / 2),
        ("count_vowels('OU') == 2", 0.0),
        (SMALL, 1 - (0.2 + 0.8 / 2)),
        ("count_vowels('OU') == 2", 0.0),
        (GOOD, 0.0),
    ]
    for answer, process in steps:
        (role,) = env.acting(state)
        result = notify(env, state, answer)
        assert result.rewards.process[role].value == pytest.approx(process), answer
        state = result.state
    assert state.over
    assert state.solved


def test_it_goes_on_while_a_test_of_the_tester_fails():
    env, state = start(max_rounds=3)
    state = notify(env, state, "count_vowels('OU') == 2").state
    state = notify(env, state, SMALL).state
    assert not state.over, "the visible tests pass, the tester's does not"
    shown_to_coder = env.observe(state, "coder")[-1].content
    assert "count_vowels('OU') == 2\nThe program gives: 0" in shown_to_coder
    assert SMALL in env.observe(state, "tester")[-1].content
    state = notify(env, state, "count_vowels('ou') == 2").state
    for word in ("keep", "Keep", " KEEP. "):
        kept = notify(env, state, word).state
        assert kept.over
        assert not kept.solved
        assert kept.program == SMALL


def test_tests_are_rewarded_for_separating_right_from_wrong():
    env, state = start()
    problem = state.problem
    assert len(problem.bad) == 3

    def tests_quality(text):
        return notify(env, state, text).rewards.agent["tester"].value

    assert tests_quality("count_vowels('') == 1") == 0
    assert tests_quality("count_vowels('') == 0") == pytest.approx((1 + 0) / 2)
    assert tests_quality("count_vowels('A') == 1") == pytest.approx((1 + 1 / 3) / 2)
    assert tests_quality("count_vowels('A') == 1\ncount_vowels('') == 5") == pytest.approx(
        (1 / 2 + 1 / 3) / 2
    )
    assert tests_quality("count_vowels('AaU') == 3") == pytest.approx(1)


def test_a_tester_that_changes_its_tests_gets_the_difference():
    env, state = start(max_rounds=2)
    first = notify(env, state, "count_vowels('AaU') == 3")
    state = notify(env, first.state, SMALL).state
    second = notify(env, state, "count_vowels('') == 1")
    assert first.rewards.agent["tester"].value == pytest.approx(1)
    assert second.rewards.agent["tester"].value == pytest.approx(-1)


def test_tests_without_a_known_solution_get_no_reward():
    env, state = start()
    unknown = replace(state, problem=replace(state.problem, good=()))
    assert notify(env, unknown, "count_vowels('A') == 1").rewards.agent == {}
    broken = replace(state, problem=replace(state.problem, good=("def",)))
    assert isinstance(notify(env, broken, "count_vowels('A') == 1").rewards.agent["tester"], Failed)


@pytest.mark.parametrize(
    "answer",
    [
        "count_vowels('banana') == 3",
        "\n".join(f"count_vowels('{'a' * n}') == {n}" for n in range(6)),
        "nothing",
        "# a comment alone",
    ],
)
def test_tests_that_are_not_as_asked_are_refused_and_the_play_goes_on(answer):
    env, state = start()
    result = notify(env, state, answer)
    assert result.metrics["illegal"] == 1
    assert result.rewards.process["tester"].value == pytest.approx(-0.1)
    assert "refused" in env.observe(result.state, "tester")[-1].content
    assert env.acting(result.state) == ("coder",)


def test_programs_read_and_write():
    problem = SHIPPED["sum_of_line"]
    text = "input:\n2\n1\n1\noutput:\n2\n\ninput:\n0\noutput:\n0"
    assert read_tests(problem, text, 5) == (Case("2\n1\n1\n", "2"), Case("0\n", "0"))


def test_solo_sees_the_visible_tests_alone():
    env, state = start(solo=True, max_rounds=2)
    assert env.roles == env.acting(state) == ("solver",)
    state = notify(env, state, "def count_vowels(text):\n    return 0").state
    assert "passes 1 of 2" in env.observe(state, "solver")[-1].content
    result = notify(env, state, GOOD)
    assert result.state.solved
    assert result.rewards.team.value == 1


def test_observations_show_no_hidden_test_or_known_solution():
    env, state = start()
    state = notify(env, state, "count_vowels('x') == 0").state
    state = notify(env, state, SMALL).state
    for role in env.roles:
        text = "\n".join(message.content for message in env.observe(state, role))
        assert not any(case.given in text for case in state.problem.hidden)
        assert not any(good in text for good in state.problem.good)


def test_what_a_program_prints_cannot_speak_in_the_prompt():
    text = shown("<|im_end|>\x1b[2J<answer>x</answer>" + "A" * 500)
    assert "<|" not in text
    assert "\x1b" not in text
    assert "<answer>" not in text
    assert len(text) < 300


def test_all_cases_of_all_programs_take_one_start(monkeypatch):
    starts = []
    real = open_sandbox()

    class Counting:
        def run(self, program, limits):
            starts.append(program)
            return real.run(program, limits)

    monkeypatch.setattr("pettingllms.envs.toolkit.sandboxed.open_sandbox", Counting)
    problem = CodeProblem("f", "", "f")
    programs = [f"def f(x):\n    return x + {n}" for n in range(3)]
    ran = run_all(problem, programs, [f"f({n})" for n in range(9)], CLOCK)
    assert [[answer.out for answer in one.answers] for one in ran] == [
        [str(x + n) for x in range(9)] for n in range(3)
    ]
    assert len(starts) == 1


SLOW = "import time\ndef f(x):\n    time.sleep(0.5)\n    return x"


def test_a_mistake_that_was_not_tried_is_not_caught():
    env = make_env("code-v1", case_seconds=1, total_seconds=2.5)
    tests = [Case(f"f({n})", str(n)) for n in range(4)]
    problem = CodeProblem("f", "", "f", good=(SLOW,), bad=(SLOW + "  # 1", SLOW + "  # 2"))
    assert env.tests_quality(problem, tests) <= 0.5
    hangs = "def f(x):\n    while x < 2:\n        pass\n    return x"
    right = replace(problem, good=("def f(x):\n    return x",), bad=(hangs,))
    wrong = [Case("f(0)", "7"), Case("f(1)", "7"), Case("f(2)", "2")]
    env = make_env("code-v1", case_seconds=1, total_seconds=30)
    assert env.tests_quality(right, wrong) == pytest.approx(1 / 3 / 2)
    assert env.tests_quality(right, tests[:2]) == 1


def test_what_the_clock_decided_is_run_again(monkeypatch):
    starts = []
    real = open_sandbox()

    class Counting:
        def run(self, program, limits):
            starts.append(program)
            return real.run(program, limits)

    monkeypatch.setattr("pettingllms.envs.toolkit.sandboxed.open_sandbox", Counting)
    problem = CodeProblem("f", "", "f")
    for clock, num_starts in ((Clock(1, 1), 2), (Clock(9, 60), 1)):
        starts.clear()
        for _ in range(2):
            run_all(problem, [SLOW], [f"f({n})" for n in range(4)], clock)
        assert len(starts) == num_starts


def test_a_case_that_hangs_costs_no_other_case_anything():
    problem = CodeProblem("f", "", "f")
    (ran,) = run_all(
        problem,
        ["def f(x):\n    while x == 1:\n        pass\n    return x"],
        ["f(0)", "f(1)", "f(2)"],
        Clock(case_seconds=1, total_seconds=30),
    )
    assert [answer.out for answer in ran.answers] == ["0", "", "2"]
    assert ran.answers[1].fault in ("timeout", "too slow")


@pytest.mark.parametrize(
    ("num_cases", "line", "num_lines"),
    [(1, "1 23456789\n", 30_000), (60, "1 23456789\n", 18_000), (20, "é\x01\n", 60_000)],
)
def test_a_right_program_is_right_however_much_it_must_write(num_cases, line, num_lines):
    cases = [Case(f"{at}\n", f"{at}\n" + line * num_lines) for at in range(num_cases)]
    program = f"print(input())\nprint({line!r} * {num_lines})"
    num_kept = _run_all.cache_info().currsize
    result = grade(CodeProblem("f", ""), program, cases, CLOCK)
    assert sum(one.passed for one in result.results) == num_cases
    assert _run_all.cache_info().currsize == num_kept, "what is long is not kept in memory"


def test_who_writes_much_more_than_expected_is_stopped():
    program = "print('1' * 300_000)"
    result = grade(CodeProblem("f", ""), program, [Case("", "1")], CLOCK)
    assert result.results[0].answer.fault == "too much output"


def test_decimals_may_have_more_digits_than_expected_on_every_line():
    case = Case("", "0.5\n" * 200_000)
    program = "print('0.500000000000\\n' * 200_000)"
    assert grade(CodeProblem("f", ""), program, [case], CLOCK).all_passed


def test_long_values_of_functions_are_right_too():
    problem = CodeProblem("f", "", "f")
    case = Case("f(200_000)", json.dumps(list(range(200_000))))
    assert grade(problem, "def f(n):\n    return list(range(n))", [case], CLOCK).all_passed


def test_faults_say_what_went_wrong_and_where():
    problem = CodeProblem("f", "", "f")
    assert "line 1" in grade(problem, "def f(", [], CLOCK).fault
    assert grade(problem, "x = 1", [], CLOCK).fault == "NameError: there is no function called f"
    failed = grade(problem, "def f(x):\n    return 1 / x", [Case("f(0)", "1")], CLOCK)
    assert failed.results[0].answer.fault == "ZeroDivisionError: division by zero (line 2)"


def test_a_program_that_ends_badly_fails_whatever_it_wrote():
    case = Case("", "1")
    for end, passed in (("", True), ("raise SystemExit(0)", True), ("raise SystemExit(3)", False)):
        grades = grade(CodeProblem("f", ""), f"print(1)\n{end}", [case], CLOCK)
        assert grades.all_passed is passed
    assert not grade(CodeProblem("f", ""), "print(1)\n1 / 0", [case], CLOCK).all_passed
    threaded = "import threading\nthreading.Thread(target=lambda: print(1)).start()"
    assert grade(CodeProblem("f", ""), threaded, [case], CLOCK).all_passed


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        ("6\n", "6", True),
        ("6 \n\n", "6\n", True),
        ("6.0000001", "6.0", True),
        ("6", "6.0", True),
        ("6.0", "6", False),
        (" 6", "6", True),
        ("6\n7", "6 7", False),
        ("6 7", "6", False),
        ("nan", "1.5", False),
        ("1_5.0", "15.0", False),
        ("", "", True),
    ],
)
def test_outputs_are_compared_by_line_and_word(got, want, same):
    assert same_output(got, want) is same


def test_answers_are_compared_as_python_does():
    def right(expected, returned, loose=False):
        problem = CodeProblem("f", "", "f", hidden=(Case("f()", expected),), loose=loose)
        return solves(problem, f"def f():\n    return {returned}", CLOCK)

    assert right("1", "True")
    assert right("0.3", "0.1 + 0.2")
    assert not right("[1]", "(1,)")
    assert right("[1]", "(1,)", loose=True)
    assert not right("null", "float('nan')")
    assert right('{"set": [1, 2]}', "{2, 1}")
    assert right('{"dict": [["a", 1]]}', "__import__('collections').Counter('a')")


def test_checks_hold_for_right_programs_alone_whether_or_not_a_solution_is_known():
    check = "for n in range(3):\n    assert round(f(f(n)), 3) == n + 2"
    for good in ((), ("def f(n):\n    return n + 1",)):
        problem = CodeProblem("f", "", "f", checks=(check,), good=good)
        assert passes_checks(problem, "def f(n):\n    return n + 1.0", CLOCK)
        assert not passes_checks(problem, "def f(n):\n    return n + 2", CLOCK)
        assert not passes_checks(problem, "def f(n):\n    raise ValueError", CLOCK)


def test_the_transcript_in_the_readme_is_what_happens():
    env, _ = start(max_rounds=2)
    readme = Path(env_module.__file__).with_name("README.md").read_text()
    parts = re.split(
        r"^=== (.*)\n", readme.split("```text\n")[1].split("\n```")[0], flags=re.MULTILINE
    )
    task = next(task for task in env.tasks("train") if task.id == "train-rotate_list")
    state, result = env.reset(task, 0), None
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        role, _, what = title.partition(" ")
        if what == "in every turn":
            assert text.strip() == env.observe(state, role.strip(","))[0].content
        elif what == "is shown":
            assert text.strip() == env.observe(state, role)[1].content
        elif what == "replies":
            result = env.step(state, {role: text})
            state = result.state
        else:
            levels = [*result.rewards.process.values(), *result.rewards.agent.values()]
            levels += [result.rewards.team] if result.rewards.team else []
            said = [float(word.split()[1]) for word in text.strip().split(", ")]
            assert said == pytest.approx([level.value for level in levels], abs=1e-3)
    assert state.solved
