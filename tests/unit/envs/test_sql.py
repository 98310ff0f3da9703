"""Queries are run where they can do no harm, and graded by what they give."""

import time
from pathlib import Path

import pytest
from plays import play

from pettingllms.envs import make_env
from pettingllms.envs.tasks.sql import driver
from pettingllms.envs.tasks.sql.database import Result, run_query
from pettingllms.envs.tasks.sql.grading import share_right
from pettingllms.envs.tasks.sql.questions import TEMPLATES, make_question
from pettingllms.envs.tasks.sql.schemas import SCHEMAS, make_database
from pettingllms.envs.toolkit.tool_calls import ToolCall
from pettingllms.envs.toolkit.tool_texts import as_call
from pettingllms.errors import DataError
from pettingllms.types import Scored


def rows(*rows: tuple) -> Result:
    return Result(tuple("abcdefg"[: len(rows[0])] if rows else "a"), rows)


@pytest.mark.parametrize(
    ("given", "expected", "ordered", "score"),
    [
        (rows((1, "a")), rows((1, "a")), True, 1.0),
        (rows((1,), (2,)), rows((2,), (1,)), False, 1.0),
        (rows((1,), (2,)), rows((2,), (1,)), True, 0.9),
        (rows((1.0,)), rows((1,)), True, 1.0),
        (rows((1 / 3,)), rows((0.33333333,)), True, 1.0),
        (rows((0.33,)), rows((1 / 3,)), True, 0.0),
        (rows(("1",)), rows((1,)), True, 0.0),
        (rows((8000000,)), rows((8000005,)), True, 0.0),
        (rows((8000000.0,)), rows((8000005,)), True, 0.0),
        (rows((8000000.1,)), rows((8000000.2,)), True, 1.0),
        (rows((float("inf"),)), rows((float("inf"),)), True, 1.0),
        (rows((None,)), rows((None,)), True, 1.0),
        (rows((None,)), rows((0,)), True, 0.0),
        (rows(("A",)), rows(("a",)), True, 0.0),
        (rows((1,), (1,)), rows((1,)), False, 0.6),
        (rows((1,)), rows((1,), (1,)), False, 0.6),
        (rows((1, 2)), rows((2, 1)), False, 0.0),
        (rows((1,)), rows((1, 1)), False, 0.0),
        (rows(), rows(), False, 1.0),
        (rows(), rows((1,)), False, 0.0),
        (Result(error="no"), rows((1,)), False, 0.0),
        (Result(error="no"), Result(error="no"), False, 0.0),
    ],
)
def test_result_sets_are_compared(given: Result, expected: Result, ordered: bool, score: float):
    assert share_right(given, expected, ordered) == pytest.approx(score)


def test_names_of_columns_do_not_count_but_their_number_does():
    one, other = Result(("x",), ((1,),)), Result(("COUNT(*)",), ((1,),))
    assert share_right(one, other, True) == 1.0
    assert share_right(Result(("a", "b"), ()), Result(("a",), ()), True) == 0.0


ATTACKS = [
    "DELETE FROM customers",
    "INSERT INTO customers VALUES (99, 'x', 'y')",
    "UPDATE products SET price = 0",
    "DROP TABLE orders",
    "CREATE TABLE x (y)",
    "ATTACH DATABASE '/tmp/x' AS y",
    "VACUUM INTO '/tmp/x'",
    "PRAGMA writable_schema = 1",
    "PRAGMA journal_mode = wal",
    "PRAGMA database_list",
    "SELECT load_extension('x')",
    "SELECT random()",
    "SELECT hex(randomblob(8))",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT current_date",
    "SELECT CURRENT_TIME",
    "SELECT date()",
    "SELECT date('now')",
    "SELECT time('NOW', 'start of day')",
    "SELECT datetime('n' || 'ow')",
    "SELECT julianday(x'6e6f77')",
    "SELECT unixepoch('now')",
    "SELECT strftime('%Y')",
    "SELECT strftime('%Y', 'now')",
    "SELECT 1; DROP TABLE orders",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n",
    "SELECT COUNT(*) FROM orders a, orders b, orders c, orders d, orders e",
    "SELECT zeroblob(1000000000)",
    "SELECT hex(zeroblob(90000))",
    "SELECT a.id FROM orders a, orders b",
    "BEGIN",
    "EXPLAIN DELETE FROM orders",
    "not sql",
    "",
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "data.sqlite"
    path.write_bytes(make_database("shop", 1))
    return path


@pytest.mark.parametrize("sql", ATTACKS)
def test_a_query_that_does_more_than_read_is_an_error(sql: str, shop: Path):
    before = shop.read_bytes()
    assert driver.run(str(shop), sql, 200).get("error"), "it ran"
    assert shop.read_bytes() == before
    assert [path.name for path in shop.parent.iterdir()] == [shop.name]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM customers ORDER BY id LIMIT 1",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 9) SELECT * FROM n",
        "PRAGMA table_info(orders)",
        "SELECT strftime('%m', day), SUM(quantity) FROM orders GROUP BY 1",
        "SELECT id FROM orders WHERE date(day, '+1 day') > date('2024-01-01')",
        "SELECT name FROM sqlite_master",
    ],
)
def test_a_query_that_reads_runs(sql: str, shop: Path):
    found = driver.run(str(shop), sql, 200)
    assert "error" not in found
    assert found["rows"]


def test_the_sandbox_gives_rows_and_tables_and_says_errors():
    database = make_database("shop", 1)
    found = run_query(
        database, "SELECT COUNT(*) FROM orders o JOIN products p ON p.id = product_id"
    )
    assert (found.rows, found.tables, found.error) == (((40,),), {"orders", "products"}, None)
    assert "no such table: order" in str(run_query(database, "SELECT * FROM order_").error)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_database_follows_from_its_seed(schema: str):
    make_database.cache_clear()
    first = make_database(schema, 5)
    make_database.cache_clear()
    assert make_database(schema, 5) == first != make_database(schema, 6)


def test_no_question_is_in_both_splits_and_all_templates_come_up():
    env = make_env("sql-v1")
    asked = {
        split: {make_question(task.seed, 3).text for task in env.tasks(split)[:150]}
        for split in ("train", "test")
    }
    assert not asked["train"] & asked["test"]
    for template in TEMPLATES:
        begin = template.text.split("{")[0]
        assert any(text.startswith(begin) for texts in asked.values() for text in texts), begin


def test_the_level_bounds_the_question():
    one = [template.text.split("{")[0] for template in TEMPLATES if template.level == 1]
    for seed in range(40):
        assert make_question(seed, 1).text.startswith(tuple(one))


@pytest.mark.parametrize("solo", [False, True])
def test_the_analyst_succeeds_and_the_blind_one_fails(solo: bool):
    env = make_env("sql-v1", solo=solo)
    for task in range(3):
        state, earned = play(env, "analyst", task)
        assert env.success(state, env.roles[-1])
        assert earned[-1][1].team.value == 1.0
        looked = sum(p.process[role].value for role, p in earned[:-1])
        assert looked == pytest.approx(env.config.look_reward)
        state, earned = play(env, "blind", task)
        assert not env.success(state, env.roles[-1])
        assert earned[-1][1].team.value == 0.0


@pytest.mark.parametrize("left_out", [0, 1], ids=["all of it", "all but a row"])
def test_spelling_out_what_was_seen_earns_nothing(left_out):
    env = make_env("sql-v1", max_level=1)
    starts = (env.reset(task, 0) for task in env.tasks("train"))
    asked = (state for state in starts if state.question.text.startswith("Which students"))
    seen = ((one, run_query(one.question.database, one.question.sql).rows) for one in asked)
    state, rows = next((state, rows[left_out:]) for state, rows in seen if len(rows) > 3)
    state = env.step(state, {"explorer": "<answer>Nothing.</answer>"}).state
    spelled = ", ".join(f"('{name}')" for (name,) in rows)
    result = env.step(state, {"writer": f"<answer>VALUES {spelled}</answer>"})
    assert result.metrics["score"] < 0.5
    assert not env.success(result.state, "writer")


def test_the_writer_sees_what_the_explorer_saw_and_a_failed_query_may_be_written_again():
    env = make_env("sql-v1", max_tries=2)
    state = env.reset(env.tasks("train")[0], 0)
    assert "CREATE TABLE" not in env.observe(state, "writer")[-1].content
    needed = min(run_query(state.question.database, state.question.sql).tables)
    call = as_call(ToolCall("describe_table", (("table", needed),)))
    state = env.step(state, {"explorer": call}).state
    state = env.step(state, {"explorer": "<answer>Use the dates.</answer>"}).state
    seen = env.observe(state, "writer")[-1].content
    assert f"CREATE TABLE {needed}" in seen
    assert "Use the dates." in seen
    result = env.step(state, {"writer": "<answer>SELECT name FROM nowhere</answer>"})
    assert not result.state.over
    assert "no such table: nowhere" in env.observe(result.state, "writer")[-1].content
    last = env.step(result.state, {"writer": "<answer>SELECT name FROM nowhere</answer>"})
    assert last.state.over
    assert last.rewards.team.value == 0.0


@pytest.mark.parametrize("style", ["hermes", "llama", "mistral"])
def test_the_option_changes_the_form_and_every_form_is_read(style: str):
    env = make_env("sql-v1", tool_calls=style)
    state = env.reset(env.tasks("train")[0], 0)
    for form in ("hermes", "llama", "mistral"):
        result = env.step(state, {"explorer": as_call(ToolCall("list_tables"), form)})
        assert result.metrics["illegal"] == 0
        call = env.observe(result.state, "explorer")[2]
        assert call.content == as_call(ToolCall("list_tables"), style)
    fenced = env.step(state, {"explorer": "```sql\nSELECT 1\n```"})
    assert fenced.state.looks[0].result == "1\n1"


def test_dates_are_as_sqlite_has_them(shop: Path):
    dates = "date('2024-03-01', '-1 day'), julianday(0), strftime('%j', '2024-12-31'), time('x')"
    assert driver.run(str(shop), f"SELECT {dates}", 9)["rows"] == [["2024-02-29", 0.0, "366", None]]


def test_a_reply_with_an_answer_is_an_answer_whatever_stands_around_it():
    for solo in (True, False):
        env = make_env("sql-v1", solo=solo)
        state = env.reset(env.tasks("train")[0], 0)
        if not solo:
            note = "Like this:\n```sql\nSELECT 1\n```\n<answer>A note.</answer>"
            state = env.step(state, {"explorer": note}).state
            assert state.notes == "A note."
        query = state.question.sql
        for reply in (
            f"First\n```sql\nSELECT 1\n```\nthen {'{}' * 5000} <answer>{query};</answer>",
            f"<answer>\n```sql\n{query};\n```\n</answer>",
            f"<answer>```\n{query}```</answer>",
        ):
            result = env.step(state, {env.roles[-1]: reply})
            assert result.metrics["illegal"] == 0
            assert env.success(result.state, env.roles[-1])


def test_the_writer_is_not_told_of_what_the_explorer_did_wrong():
    env = make_env("sql-v1", max_calls=1)
    state = env.reset(env.tasks("train")[0], 0)
    result = env.step(state, {"explorer": "Hm."})
    assert result.metrics["illegal"] == 1
    assert env.acting(result.state) == ("writer",)
    assert "came to nothing" not in env.observe(result.state, "writer")[-1].content


def test_a_query_without_rows_shows_no_table():
    env = make_env("sql-v1")
    state = env.reset(env.tasks("train")[0], 0)
    needed = sorted(run_query(state.question.database, state.question.sql).tables)
    for limit, coverage in ((0, 0.0), (1, 1.0)):
        columns = ", ".join(f"{table}.rowid" for table in needed)
        sql = f"SELECT {columns} FROM {', '.join(needed)} LIMIT {limit}"  # noqa: S608 - its own
        result = env.step(state, {"explorer": as_call(ToolCall("run_query", (("sql", sql),)))})
        assert result.metrics["coverage"] == coverage
        earned = result.rewards.process["explorer"].value
        assert earned == pytest.approx(coverage * env.config.look_reward)


def test_a_bad_call_is_priced_and_told():
    env = make_env("sql-v1")
    state = env.reset(env.tasks("train")[0], 0)
    call = as_call(ToolCall("describe_tabel", (("table", "x"),)))
    result = env.step(state, {"explorer": call})
    assert result.rewards.process["explorer"].value == env.config.illegal_reward
    assert "did you mean 'describe_table'?" in env.observe(result.state, "explorer")[-1].content


def test_a_file_of_questions_is_played(tmp_path: Path):
    import json

    folder = tmp_path / "database" / "shop"
    folder.mkdir(parents=True)
    (folder / "shop.sqlite").write_bytes(make_database("shop", 3))
    query = "SELECT COUNT(*) FROM customers WHERE id > "
    found = [
        {"question": f"How many after {at}?", "query": f"{query}{at}", "db_id": "shop"}
        for at in range(30)
    ]
    (tmp_path / "dev.json").write_text(json.dumps(found))
    env = make_env("sql-v1", data=str(tmp_path / "dev.json"))
    train, test = env.tasks("train"), env.tasks("test")
    assert len(train) + len(test) == 30
    assert min(len(train), len(test)) > 0
    state, _ = play(env, "analyst", 0)
    assert env.success(state, "writer")
    many = "SELECT a.id, b.id, c.id FROM customers a, customers b, customers c LIMIT 300"
    long = found[0] | {"query": many}
    (tmp_path / "long.json").write_text(json.dumps([long, *found[1:]]))
    env = make_env("sql-v1", data=str(tmp_path / "long.json"), solo=True)
    state = env.reset((*env.tasks("train"), *env.tasks("test"))[0], 0)
    result = env.step(state, {"solver": env.reply_of(many)})
    assert result.rewards.team == Scored(1.0), "a right answer may be longer than a look"
    look = run_query(state.question.database, many)
    assert look.error == "the result has more than 200 rows"
    empty = found[0] | {"query": "SELECT id FROM customers WHERE id < 0"}
    (tmp_path / "empty.json").write_text(json.dumps([empty, *found[1:]]))
    env = make_env("sql-v1", data=str(tmp_path / "empty.json"))
    with pytest.raises(DataError, match="row 1: the reference query gives no rows"):
        env.reset((*env.tasks("train"), *env.tasks("test"))[0], 0)


def test_long_results_are_compared_in_a_moment() -> None:
    exact = [(at, f"name {at}", at / 7) for at in range(10_000)]
    near = [(at, name, share * (1 + 1e-9)) for at, name, share in reversed(exact)]
    off = [(at, name, share + 1) for at, name, share in exact]
    alike = [(at / 7,) for at in range(10_000)]
    began = time.process_time()
    assert share_right(rows(*near), rows(*exact), False) == 1.0
    assert share_right(rows(*near), rows(*exact), True) == 0.9
    assert share_right(rows(*off), rows(*exact), False) == 0.0
    assert share_right(rows(*near[:5000]), rows(*exact), False) == pytest.approx(0.6)
    shifted = [(share * (1 + 1e-9),) for (share,) in alike]
    assert share_right(rows(*shifted), rows(*alike), False) == 1.0
    assert time.process_time() - began < 5
