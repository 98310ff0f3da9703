"""Files in the form of Spider and BIRD are read; a bad one gives one message with file and row."""

import json
from pathlib import Path
from typing import Any

import pytest

from pettingllms.datasets.text_to_sql import read_questions
from pettingllms.envs.tasks.sql.schemas import make_database
from pettingllms.errors import DataError

SPIDER = {"db_id": "shop", "query": "SELECT name FROM customers ORDER BY name", "question": "Who?"}
BIRD = {
    "db_id": "shop",
    "SQL": "SELECT COUNT(*) FROM orders",
    "question": "How many?",
    "evidence": "",
}


def write(folder: Path, rows: Any, name: str = "dev.json") -> str:
    place = folder / "database" / "shop"
    place.mkdir(parents=True, exist_ok=True)
    (place / "shop.sqlite").write_bytes(make_database("shop", 0))
    fake = folder / "database" / "fake"
    fake.mkdir(exist_ok=True)
    (fake / "fake.sqlite").write_text("not a database")
    (folder / name).write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return str(folder / name)


def test_both_forms_are_read(tmp_path: Path) -> None:
    spider, bird, both = read_questions(write(tmp_path, [SPIDER, BIRD, {**BIRD, "query": None}]))
    assert both.query == bird.query
    assert (spider.question, spider.query, spider.ordered) == ("Who?", SPIDER["query"], True)
    assert (bird.query, bird.ordered) == (BIRD["SQL"], False)
    assert spider.database().startswith(b"SQLite format 3")


MALFORMED = [
    ("{", "row 1: not JSON"),
    ("{}", "row 1: has no 'query'"),
    ("[]", "expected a list"),
    ([SPIDER, 7], "row 2: a JSON int; expected an object"),
    ([SPIDER, {**SPIDER, "question": ""}], "row 2: 'question'"),
    ([{**SPIDER, "question": None}], "row 1: 'question'"),
    ([SPIDER, SPIDER, {"db_id": "shop", "question": "Who?"}], "row 3: has no 'query'"),
    ([{**SPIDER, "query": ["SELECT"]}], "row 1: 'query'"),
    ([{**SPIDER, "db_id": "nowhere"}], "row 1: database "),
    ([{**SPIDER, "db_id": "../shop"}], "row 1: 'db_id'"),
    ([{**SPIDER, "db_id": 3}], "row 1: 'db_id'"),
    ([{**SPIDER, "db_id": "fake"}], "is not a SQLite file"),
]


@pytest.mark.parametrize(("rows", "what"), MALFORMED)
def test_a_malformed_file_gives_one_message_with_file_and_row(
    rows: Any, what: str, tmp_path: Path
) -> None:
    file = write(tmp_path, rows)
    with pytest.raises(DataError) as error:
        read_questions(file)
    assert file in str(error.value)
    assert what in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none.json: cannot be read: No such file"):
        read_questions(str(tmp_path / "none.json"))
