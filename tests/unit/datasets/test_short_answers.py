"""Questions with short answers are read; a bad file gives one message with file and row."""

import json
from pathlib import Path

import pytest

from pettingllms.datasets.short_answers import ShortAnswer, read_short_answers
from pettingllms.errors import DataError

GOOD = '{"question": "Who?", "answer": "Ada"}\n'


def test_both_forms_are_read(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(GOOD + '\n{"id": "7", "question": " Where? ", "golden_answers": ["A", "B "]}\n')
    assert read_short_answers(str(path)) == (
        ShortAnswer("Who?", ("Ada",)),
        ShortAnswer("Where?", ("A", "B"), 1),
    )


def test_lines_end_where_json_lines_do_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    rows = [{"question": f"Who{sign}?", "answer": "A"} for sign in "\u2028\u2029\x85\x1c"]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert [row.question for row in read_short_answers(str(path))] == [
        row["question"] for row in rows
    ]


def test_no_golden_answers_are_none(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"question": "Who?", "golden_answers": null, "answer": "Ada"}')
    assert read_short_answers(str(path)) == (ShortAnswer("Who?", ("Ada",)),)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (GOOD + "{", "row 2: not JSON"),
        (GOOD + "[]", "row 2: a JSON list; expected an object"),
        ('{"answer": "Ada"}', "row 1: "),
        ('{"question": 3, "answer": "Ada"}', "row 1: "),
        ('{"question": " ", "answer": "Ada"}', "row 1: "),
        (GOOD + GOOD + '{"question": "Who?"}', "row 3: 'answer'"),
        ('{"question": "Who?", "answer": ""}', "row 1: 'answer'"),
        ('{"question": "Who?", "golden_answers": []}', "row 1: 'answer'"),
        ('{"question": "Who?", "golden_answers": ["a", 1]}', "row 1: 'answer'"),
        ("\n\n", "expected rows with question and answer"),
    ],
)
def test_a_malformed_file_gives_one_message_with_file_and_row(
    text: str, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_short_answers(str(path))
    assert str(path) in str(error.value)
    assert what in str(error.value)


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="row 1: not UTF-8"):
        read_short_answers(str(path))
