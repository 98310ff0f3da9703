"""Published formats are read as they were published; what is malformed is named by file and row."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from pettingllms.datasets import LOADERS, Problem, check_overlap, load, read_rows
from pettingllms.datasets.math_sets import last_boxed
from pettingllms.datasets.overlap import contamination, overlap
from pettingllms.datasets.splits import divided
from pettingllms.errors import DataError

DATA = Path(__file__).parents[2] / "data"
SAMPLES = {
    "gsm8k": ("gsm8k.jsonl", "30", 3),
    "math": ("math.json", "\\frac{3}{4}", 3),
    "math500": ("math500.jsonl", "12", 2),
    "aime": ("aime24.jsonl", "204", 2),
    "aime25": ("aime25.jsonl", "70", 2),
    "olympiadbench": ("olympiadbench.jsonl", "\\{1,3,5\\}", 3),
    "dapo_math": ("dapo_math.jsonl", "34", 2),
    "svamp": ("svamp.jsonl", "19", 2),
    "anli": ("anli.csv", "contradiction", 3),
    "anli_lines": ("anli.jsonl", "entailment", 3),
    "anli_hub": ("anli_hub.jsonl.gz", "neutral", 3),
    "plain": ("aime25.jsonl", "70", 2),
}
MALFORMED = {
    "gsm8k_no_hashes.jsonl": ("gsm8k", 2, "'answer' ends in"),
    "gsm8k_no_question.jsonl": ("gsm8k", 3, "has no 'question'"),
    "gsm8k_not_json.jsonl": ("gsm8k", 2, "not JSON"),
    "gsm8k_a_list.jsonl": ("gsm8k", 1, "expected an object"),
    "math_no_box.json": ("math", 2, "no \\boxed"),
    "aime_too_large.jsonl": ("aime", 2, "from 0 to 999"),
    "olympiadbench_two.jsonl": ("olympiadbench", 1, "a list with one text"),
    "dapo_no_truth.jsonl": ("dapo_math", 1, "ground_truth"),
    "svamp_word.jsonl": ("svamp", 2, "expected a number"),
    "anli_label.csv": ("anli", 2, "expected one of"),
    "anli_short_row.csv": ("anli", 2, "fields; expected"),
    "anli_open_quote.csv": ("anli", 2, "not CSV"),
    "gsm8k_empty_question.jsonl": ("gsm8k", 1, "'question' is empty"),
    "gsm8k_latin1.jsonl": ("gsm8k", 2, "not UTF-8"),
    "gsm8k_cut.jsonl.gz": ("gsm8k", 1, "not a complete gzip"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_in_the_published_format_is_read(name: str) -> None:
    file, answer, count = SAMPLES[name]
    loader = re.split(r"_(lines|hub)|500|25", name)[0]
    problems = load(f"{loader}:{DATA / 'samples' / file}")
    assert len(problems) == count
    assert problems[0].answer == answer
    assert all(problem.question and problem.answer for problem in problems)
    assert len({problem.id for problem in problems}) == count


def test_every_loader_has_a_sample() -> None:
    read = {re.split(r"_(lines|hub)|500|25", name)[0] for name in SAMPLES}
    assert read == set(LOADERS)


@pytest.mark.parametrize("file", MALFORMED)
def test_a_malformed_file_gives_one_message_with_file_and_row(file: str) -> None:
    loader, row, what = MALFORMED[file]
    path = DATA / "malformed" / file
    with pytest.raises(DataError) as caught:
        load(f"{loader}:{path}")
    message = str(caught.value)
    assert message.startswith(f"{path}, row {row}: ")
    assert what in message
    assert "\n" not in message


def test_there_are_at_least_ten_malformed_files() -> None:
    assert len(MALFORMED) >= 10
    assert set(MALFORMED) == {path.name for path in (DATA / "malformed").iterdir()}


def test_a_file_that_is_not_there_or_empty_or_unknown_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load(f"gsm8k:{tmp_path / 'none.jsonl'}")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(DataError, match="has no rows"):
        load(f"gsm8k:{tmp_path / 'empty.jsonl'}")
    with pytest.raises(DataError, match="unknown format"):
        load(f"gsm8k:{tmp_path / 'x.txt'}")
    with pytest.raises(DataError, match="did you mean 'gsm8k'"):
        load("gsm8")


def test_the_same_rows_in_any_writing(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}+{n}?", "answer": f"It is\n#### {2 * n}"} for n in (1, 2, 3)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.json").write_text(json.dumps(rows))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "d").mkdir()
    for n, row in enumerate(rows):
        (tmp_path / "d" / f"{n}.json").write_text(json.dumps(row, indent=1))
    found = [load(f"gsm8k:{tmp_path / name}") for name in ("a.jsonl", "b.json", "c.jsonl.gz", "d")]
    asked = [[(problem.question, problem.answer) for problem in some] for some in found]
    assert all(some == asked[0] for some in asked)
    assert asked[0][2] == ("What is 3+3?", "6")


def test_parquet_is_read_with_its_nested_values(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs the extra `data`")
    path = tmp_path / "dapo[1].parquet"
    duckdb.connect().execute(
        "copy (select [{'content': 'What is 2+2?', 'role': 'user'}] as prompt, "
        "{'ground_truth': '4', 'style': 'rule'} as reward_model) to "
        f"'{path}' (format parquet)"
    )
    assert [(p.question, p.answer) for p in load(f"dapo_math:{path}")] == [("What is 2+2?", "4")]
    path.write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="row 1: not parquet"):
        load(f"dapo_math:{path}")


def test_dapo_problems_come_without_their_instructions_and_once() -> None:
    file = DATA / "samples" / "dapo_math.jsonl"
    problems = load(f"dapo_math:{file}")
    assert len(list(read_rows(file))) == 3
    assert problems[0].question.startswith("A farmer")
    assert "Remember" not in problems[0].question


def test_boxes_are_read_by_their_braces() -> None:
    assert last_boxed("\\boxed{1} then \\boxed{\\frac{1}{2}} end") == "\\frac{1}{2}"
    assert last_boxed("\\boxed{\\{1,2\\}}") == "\\{1,2\\}"
    assert last_boxed("\\fbox{7}") == "7"
    assert last_boxed("\\boxed{1") is None
    assert last_boxed("none") is None
    matrix = "\\begin{pmatrix}1\\\\{2}\\end{pmatrix}"
    assert last_boxed(f"\\boxed{{{matrix}}}") == matrix
    assert last_boxed("\\boxed {7}") == "7"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so it is $\\boxed 2$.", "2"),
        ("so it is \\boxed 2", "2"),
        ("so it is \\boxed 12. We are done.", "12"),
        ("$\\boxed{5}$, no: $\\boxed 7$", "7"),
        ("$\\boxed 7$, no: $\\boxed{5}$", "5"),
        ("\\(\\boxed7\\)", "7"),
        ("$\\boxed -3$", "-3"),
        ("$\\boxed\\frac{1}{2}$", "\\frac{1}{2}"),
        ("$\\boxed x$", "x"),
        ("\\boxed{5}, in a \\boxed form", "5"),
        ("\\boxed{5}, in a \\boxed.", "5"),
        ("\\boxed", None),
    ],
)
def test_a_box_without_braces_is_one(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


def test_problems_of_a_folder_have_an_id_each_whatever_its_folders(tmp_path: Path) -> None:
    for kind in ("algebra", "geometry"):
        (tmp_path / "train" / kind).mkdir(parents=True)
        row = {"problem": f"What is one in {kind}?", "solution": "\\boxed 1"}
        (tmp_path / "train" / kind / "1.json").write_text(json.dumps(row))
    found = [problem.id for problem in load(f"math:{tmp_path}")]
    assert found == ["train/algebra/1.json:1", "train/geometry/1.json:1"]
    assert load(f"math:{tmp_path / 'train' / 'algebra' / '1.json'}")[0].id == "1.json:1"


@pytest.mark.parametrize(
    "text",
    [
        '{"question": "What is 1+1?",\n "answer": "#### 2"}\n',
        '{\n"question": "What is 1+1?", "answer": "#### 2"}',
        '[{"question": "What is 1+1?",\n "answer": "#### 2"}]',
        '{"question": "What is 1+1?", "answer": "#### 2"}\n\n',
        '\n{"question": "What is 1+1?", "answer": "#### 2"}\n{"question": "?", "answer": "####1"}',
    ],
)
def test_json_is_read_however_its_lines_are_broken(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert load(f"gsm8k:{path}")[0].answer == "2"


def test_an_object_that_is_not_whole_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"question": "What is 1+1?",\n "answer": \n')
    with pytest.raises(DataError, match=r"a\.json, row 1: not JSON \(.*line 3"):
        load(f"gsm8k:{path}")


def problem(name: str, question: str) -> Problem:
    return Problem(name, question, "1")


def test_train_and_test_must_not_meet_however_they_are_written() -> None:
    train = [problem("a:1", "What is 2 + 2?"), problem("a:2", "What is 3 + 2?")]
    assert overlap(train, [problem("b:1", "What is 2 - 2?")]) == []
    with pytest.raises(DataError, match="1 test problems .* a:1 = b:9"):
        check_overlap(train, [problem("b:9", "what is  2 + 2")])


def test_questions_that_share_most_of_their_words_are_near() -> None:
    story = "Ada has 3 apples and buys 4 more at the market on a sunny day"
    train = [problem(f"a:{n}", f"{word}, how many?") for n, word in enumerate([story, "Ben."])]
    test = [problem("b:1", f"{story}, says Ben."), problem("b:2", f"{story.upper()}, how  many?")]
    test.append(problem("b:3", "Ben has 9 pears and sells 2 of them to Ada in the evening"))
    found = contamination(train, test)
    assert [(ours.id, theirs.id) for ours, theirs in found.same] == [("a:0", "b:2")]
    assert [(ours.id, theirs.id) for ours, theirs in found.near] == [("a:0", "b:1")]


def test_phrases_that_all_questions_have_do_not_make_them_near() -> None:
    ask = "Is the statement to the text entailment, neutral or contradiction?"
    train = [problem(f"a:{n}", f"Text {n}. {ask}") for n in range(30)]
    assert contamination(train, [problem("b:1", f"Another. {ask}")]).near == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(2+3)*4", "2+(3*4)"),
        ("5!", "5"),
        ("|-3|", "-3"),
        ("[1, 2]", "(1, 2)"),
        ("{1, 2}", "(1, 2)"),
        ("6 × 3", "6 ÷ 3"),
    ],
)
def test_signs_that_mean_something_make_another_problem(one: str, other: str) -> None:
    asked = [problem("a", f"What is {one}?"), problem("b", f"What is {other}?")]
    assert overlap(asked[:1], asked[1:]) == []


def test_one_file_is_divided_so_that_twins_stay_together() -> None:
    asked = [problem(f"a:{n}", f"What is {n % 300} + 1?") for n in range(600)]
    train, test = divided(asked, 0.2)
    assert len(train) + len(test) == 600
    assert 60 < len(test) < 180
    assert overlap(train, test) == []


REAL = {
    "gsm8k/train.jsonl": ("gsm8k", 7473),
    "gsm8k/test.jsonl": ("gsm8k", 1319),
    "math/test.json": ("math", 5000),
    "aime24/test.jsonl": ("aime", 30),
    "olympiadbench/test.jsonl": ("olympiadbench", 675),
    "svamp/test.jsonl": ("svamp", 1000),
    "anli/r1_dev.csv": ("anli", 1000),
    "anli/r2_dev.csv": ("anli", 1000),
    "anli/r3_dev.csv": ("anli", 1198),
}


@pytest.mark.skipif("PETTINGLLMS_DATA" not in os.environ, reason="PETTINGLLMS_DATA is not set")
@pytest.mark.parametrize("file", REAL)
def test_the_published_files_are_read_whole(file: str) -> None:
    loader, count = REAL[file]
    assert len(load(f"{loader}:{Path(os.environ['PETTINGLLMS_DATA']) / file}")) == count


@pytest.mark.skipif("PETTINGLLMS_DATA" not in os.environ, reason="PETTINGLLMS_DATA is not set")
@pytest.mark.parametrize("file", REAL)
def test_the_published_files_are_recognized_by_their_fields(file: str) -> None:
    loader, _ = REAL[file]
    path = Path(os.environ["PETTINGLLMS_DATA"]) / file
    found, wanted = load(str(path)), load(f"{loader}:{path}")
    assert [one.question for one in found] == [one.question for one in wanted]
    assert [one.answer.lstrip("0") for one in found] == [one.answer.lstrip("0") for one in wanted]


@pytest.mark.skipif("PETTINGLLMS_DATA" not in os.environ, reason="PETTINGLLMS_DATA is not set")
def test_gsm8k_as_published_does_not_overlap() -> None:
    folder = Path(os.environ["PETTINGLLMS_DATA"]) / "gsm8k"
    check_overlap(load(f"gsm8k:{folder / 'train.jsonl'}"), load(f"gsm8k:{folder / 'test.jsonl'}"))
