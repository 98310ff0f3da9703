"""Suites on published test sets: benches, data, published numbers, and what the command prints."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from suite_runs import PROTOCOLS, SUMS, rows, run
from typer.testing import CliRunner

pytest.importorskip("ray")

from pettingllms.cli import suites as cli_suites
from pettingllms.cli.main import app
from pettingllms.datasets import splits
from pettingllms.datasets.published import ENVIRONMENTS, published
from pettingllms.datasets.store import data_folder
from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.bench_data import num_published, sources_of
from pettingllms.evaluation.suites.references import references
from pettingllms.evaluation.suites.suite import Changes, Suite, builtin_suites, load_suite
from pettingllms.types.sampling import Truncation

pytestmark = pytest.mark.usefixtures("no_data")
OWN = {"code", "games", "math", "puzzles", "tools"}
PUBLISHED = sorted(set(builtin_suites()) - OWN)
# Suites -------------------------------------------------------------------------------------------


def test_each_published_suite_has_a_protocol_here() -> None:
    assert set(PROTOCOLS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_suite_is_what_its_protocol_says(name: str) -> None:
    samples, temperature, truncation, tokens = PROTOCOLS[name]
    benches = load_suite(name).benches
    for bench in benches:
        own = 5 if name == "at_grpo" and "AIME" in bench.title else samples
        assert bench.num_samples == own, bench.title
        assert bench.temperature == temperature, bench.title
        assert (bench.truncation or Truncation()) == Truncation(*truncation), bench.title
        assert bench.protocol
        if bench.env not in ("hanabi-v1", "sudoku-v1", "sokoban-v1", "plan_path-v1"):
            assert bench.num_tasks == "all"
    assert {bench.max_reply_tokens for bench in benches} == tokens


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_bench_reads_the_test_split_of_a_set_that_its_environment_reads(name: str) -> None:
    for bench in load_suite(name).benches:
        for source, split in sources_of(bench):
            assert split == "test"
            assert source.published is not None
            assert bench.env in ENVIRONMENTS[source.published.kind]
            assert split in source.published.files_of(source.part)
            assert "data" not in bench.options, "nothing is trained on, so nothing else is read"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_suites_have_teams_and_most_have_one_role_alone(name: str) -> None:
    forms = {form for bench in load_suite(name).benches for form in bench.forms}
    assert forms == ({"team"} if name in ("hanabi", "maporl") else {"team", "solo"})


def test_the_table_of_at_grpo_has_every_task_in_both_forms() -> None:
    benches = load_suite("at_grpo").benches
    tasks = {one.bench for one in references() if "its first implementation" in one.source}
    assert {(bench.reference, form) for bench in benches for form in bench.forms} == {
        (task, form) for task in tasks for form in ("solo", "team")
    }
    assert len(benches) == 18
    by_name = {bench.title: bench.options for bench in benches}
    assert by_name["Plan-Path 10x10, team"] == {
        "width": 10, "height": 10, "wall_share": 0.22, "max_rounds": 5, "roles": "tool_planner",
    }  # fmt: skip
    assert by_name["Sudoku 4x4, single"]["size"] == 4
    assert by_name["Sokoban 6x6, team"]["width"] == by_name["Sokoban 6x6, team"]["height"] == 6
    assert by_name["APPS, team"]["test_data"] == "apps:test?rows=0..500"


def test_published_counts_are_known_for_whole_sets() -> None:
    def count(suite: str) -> int | None:
        return num_published(load_suite(suite).benches[0])

    assert (count("gsm8k"), count("apps"), count("aime")) == (1319, 500, 30)
    assert (count("anli"), count("hanabi")) == (None, None), "a part, and generated deals"


def test_defaults_fill_what_a_bench_leaves_out() -> None:
    data = {
        "title": "T",
        "defaults": {"env": "sudoku-v1", "num_tasks": 3, "options": {"size": 9, "terse": True}},
        "benches": [{"options": {"size": 4}}, {"name": "b", "num_tasks": "all"}],
    }
    first, second = Suite.model_validate(data).benches
    assert (first.num_tasks, first.options) == (3, {"size": 4, "terse": True})
    assert (second.num_tasks, second.options) == ("all", {"size": 9, "terse": True})


def test_a_user_may_choose_benches_and_set_options() -> None:
    suite = load_suite("at_grpo").changed(Changes(names=("aime24",), options={"terse": True}))
    assert [bench.title for bench in suite.benches] == ["AIME24, single", "AIME24, team"]
    assert all(bench.options["terse"] and "test_data" in bench.options for bench in suite.benches)
    with pytest.raises(ConfigError, match="no benchmark has such a name; Sudoku"):
        load_suite("at_grpo").changed(Changes(names=("aime26",)))


# Missing data -------------------------------------------------------------------------------------


def test_missing_sets_have_one_message_each_before_a_model_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, "no-such-model", "--suite", "at_grpo")
    text = str(caught.value)
    for name in ("livecodebench/v6", "code_contests", "aime24", "aime25", "olympiadbench"):
        assert text.count(f"run `pettingllms data get {name}`") == 1, name
    assert text.count("data get apps:test`") == 1
    assert "AIME24, single; AIME24, team: 'aime24' is not on this machine" in text
    assert "--skip-missing" in text
    assert "no-such-model" not in text
    assert "Sudoku" not in text, "generated puzzles need no data"
    assert not (tmp_path / "out").exists()


def test_parts_of_one_set_are_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, "--suite", "anli", "--player", "solver")
    (problem,) = caught.value.problems
    assert problem.endswith(
        "'anli/r1', 'anli/r2', 'anli/r3' are not on this machine; run `pettingllms data get anli`"
    )


def test_a_set_that_does_not_exist_is_an_error_that_nothing_skips(tmp_path: Path) -> None:
    words = ["--suite", "gsm8k", "--player", "solver", "--option", "test_data=gsmk"]
    with pytest.raises(ConfigError, match=r"called 'gsmk'.*did you mean 'gsm8k'") as caught:
        run(tmp_path, *words, "--skip-missing")
    assert "--skip-missing" not in str(caught.value)


def test_missing_sets_are_skipped_and_listed(tmp_path: Path) -> None:
    words = ["--suite", "at_grpo", "--bench", "Sudoku", "--bench", "AIME24", "--skip-missing"]
    said, found = run(tmp_path, *words, "--player", "random", "--tasks", "2")
    assert [one["name"] for one in found["benches"]] == ["Sudoku 4x4, single", "Sudoku 4x4, team"]
    assert set(found["skipped"]) == {"AIME24, single", "AIME24, team"}
    assert "AIME24, team: skipped. 'aime24' is not on this machine" in said
    assert "pettingllms data get aime24" in said


def test_a_service_that_must_be_named_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answer": "Ada"}) + "\n")
    words = ["--suite", "hotpotqa", "--player", "random", "--option", f"test_data={path}"]
    with pytest.raises(ConfigError, match="needs service; --option service=VALUE"):
        run(tmp_path, *words)


def test_data_that_changes_is_measured_again(tmp_path: Path) -> None:
    data = f"test_data={rows(tmp_path, 'problems')}"
    words = ["--suite", "gsm8k", "--bench", "GSM8K", "--player", "solver", "--option", data]
    run(tmp_path, *words)
    said, _ = run(tmp_path, *words)
    assert "already done: GSM8K;" in said
    (tmp_path / "problems.jsonl").write_text(json.dumps(SUMS[0]) + "\n")
    splits._read.cache_clear()
    said, found = run(tmp_path, *words)
    assert "already done" not in said
    assert found["benches"][0]["forms"]["solo"]["num_tasks"] == 1


# Published numbers --------------------------------------------------------------------------------


def test_every_published_number_belongs_to_a_bench_and_names_its_source() -> None:
    known = {bench.reference for name in PUBLISHED for bench in load_suite(name).benches} - {""}
    assert {one.bench for one in references()} == known
    assert all(one.source and one.model and one.method for one in references())
    assert all(0 <= one.percent <= 100 for one in references())
    keys = [(one.bench, one.form, one.model, one.method, one.source) for one in references()]
    assert len(keys) == len(set(keys))


def test_the_numbers_of_at_grpo_are_those_of_the_paper() -> None:
    table = {(one.model, one.method, one.bench): one.percent for one in references()}
    assert table["Qwen3-1.7B", "AT-GRPO, one policy per role", "sokoban"] == 11.5
    assert table["Qwen3-1.7B", "single agent, GRPO", "olympiadbench"] == 23.8
    assert table["Qwen3-8B", "AT-GRPO, one policy per role", "aime24"] == 57.0
    assert table["Qwen3-8B", "AT-GRPO, shared policy", "livecodebench"] == 30.28
    assert table["Qwen3-8B", "team, GRPO", "sokoban"] == 30
    assert ("Qwen3-8B", "team, GRPO", "apps") not in table, "not published"


def test_published_numbers_are_shown_apart_and_labeled(tmp_path: Path) -> None:
    words = ["--suite", "at_grpo", "--bench", "Sudoku", "--player", "backtracking", "--tasks", "3"]
    said, found = run(tmp_path, *words)
    page = (tmp_path / "out" / "table.md").read_text()
    own, published_part = page.split("## Published numbers, measured by others")
    assert "AT-GRPO," not in own
    assert "| measured here | team | backtracking |  | 100.0%" in published_part
    assert "| published | team | Qwen3-1.7B | AT-GRPO, shared policy | 99.0% |" in published_part
    assert "| published | solo | Qwen3-8B | single agent, GRPO | 54.0% |" in published_part
    assert "arXiv 2510.11062" in published_part
    assert "published" in said
    assert all(one["kind"] == "published" for one in found["published"])
    assert {(one["bench"]) for one in found["published"]} == {"sudoku"}
    assert "Not the protocol of the suite: --tasks 3." in said
    assert found["changed"] == ["--tasks 3"]
    for bench in found["benches"]:
        assert "percent" not in json.dumps(bench), "published numbers are in no result"


def test_suites_without_published_numbers_show_none(tmp_path: Path) -> None:
    said, found = run(tmp_path, "--suite", "hanabi", "--player", "random", "--tasks", "2")
    assert found["published"] == []
    assert "Published numbers" not in said
    score = found["benches"][0]["forms"]["team"]["metrics"]["score"]
    assert 0 <= score["low"] <= score["value"] <= score["high"] <= 25
    assert f"Hanabi, 2 players, team: mean score {score['value']:.3f}" in said


def test_list_suites_names_data_numbers_and_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_suites, "console", Console(width=200))
    result = CliRunner().invoke(app, ["list", "suites"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert all(name in said for name in builtin_suites())
    for text in ("all 1,319", "apps:test?rows=0..500", "livecodebench/v6", "Dr. MAS", "AT-GRPO"):
        assert text in said, text
    assert set(published()) - {"math", "dapo_math", "boxoban"} <= {
        source.name
        for name in PUBLISHED
        for bench in load_suite(name).benches
        for source, _ in sources_of(bench)
    }, "each published test set has a suite"


def test_the_folder_of_data_is_that_of_this_test(tmp_path: Path) -> None:
    assert data_folder() == tmp_path / "data"
