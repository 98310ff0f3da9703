"""Engines get the sampling parameters of the protocols, once per task and sample."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from suite_runs import PROTOCOLS, Recorded, rows, run

pytest.importorskip("ray")

from pettingllms.errors import ConfigError
from pettingllms.evaluation.suites.suite import load_suite
from pettingllms.types import Sample, SampleRequest
from pettingllms.types.sampling import Truncation

pytestmark = pytest.mark.usefixtures("no_data")


@pytest.mark.parametrize("name", sorted(PROTOCOLS.keys() - {"at_grpo", "spider", "hotpotqa"}))
def test_requests_have_the_sampling_of_the_protocol(
    name: str, recorded: Recorded, tmp_path: Path
) -> None:
    samples, temperature, truncation, tokens = PROTOCOLS[name]
    suite = load_suite(name)
    kind = "code" if suite.benches[0].env == "code-v1" else "problems"
    data = [] if name == "hanabi" else ["--option", f"test_data={rows(tmp_path, kind)}"]
    given = ["--tasks", "2"] if name == "hanabi" else []
    _, found = run(tmp_path, "--suite", name, "--player", "random", *data, *given)
    requests = recorded.asked
    assert {one.temperature for one in requests} == {0.9 if temperature is None else temperature}
    expected = Truncation(0.5, 7) if temperature is None else Truncation(*truncation)
    if temperature == 0.0:
        assert all(one.temperature == 0 for one in requests), "greedy ignores the truncation"
    else:
        assert {one.truncation for one in requests} == {expected}
    assert {one.max_tokens for one in requests} == tokens
    num_tasks = {"code": 3, "problems": 5}[kind] if data else 2
    for bench in found["benches"]:
        for form in bench["forms"].values():
            assert (form["num_samples"], form["k"]) == (samples, samples)
            assert (form["num_tasks"], len(form["tasks"])) == (num_tasks, num_tasks)
            assert str(samples) in form["pass_at"]


@pytest.mark.parametrize(("bench", "tokens"), [("Sudoku", 8192), ("Plan-Path", 2048)])
def test_puzzles_of_at_grpo_have_its_sampling(
    bench: str, tokens: int, recorded: Recorded, tmp_path: Path
) -> None:
    words = ["--suite", "at_grpo", "--bench", bench, "--tasks", "2", "--player", "random"]
    run(tmp_path, *words)
    sent = {(one.temperature, one.truncation, one.max_tokens) for one in recorded.asked}
    assert sent == {(0.6, Truncation(0.95, 20), tokens)}


def test_spider_is_graded_by_executing_on_its_databases(tmp_path: Path) -> None:
    folder = tmp_path / "database" / "shop"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "shop.sqlite")) as base:
        base.executescript("create table fruit (name text); insert into fruit values ('fig');")
    asked = {"question": "Which fruit is there?", "query": "SELECT name FROM fruit"}
    (tmp_path / "dev.json").write_text(json.dumps([{**asked, "db_id": "shop"}]))
    words = ["--suite", "spider", "--option", f"test_data={tmp_path / 'dev.json'}"]
    for player, share in (("analyst", 1.0), ("random", 0.0)):
        _, found = run(tmp_path / player, *words, "--player", player)
        assert [one["name"] for one in found["benches"]] == [
            "Spider", "Spider, explorer and writer",
        ]  # fmt: skip
        for bench in found["benches"]:
            (form,) = bench["forms"].values()
            assert form["avg"]["value"] == share, (player, bench["name"])


def test_hotpotqa_reports_f1_beside_exact_match(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    pytest.importorskip("httpx")
    from servers import serving

    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answer": "Ada Lovelace"}) + "\n")
    words = ["--suite", "hotpotqa", "--bench", "HotpotQA", "--option", f"test_data={path}"]
    article = {"results": [{"title": "Ada", "text": "A mathematician."}]}
    answer = "<answer>Ada</answer>"
    with serving(lambda _: (200, article)) as search, serving(lambda _: answer) as model:
        service = f"service={search.url}"
        said, found = run(tmp_path, model.url, *words, "--option", service)
    (form,) = found["benches"][0]["forms"].values()
    assert form["avg"]["value"] == 0, "no exact match"
    assert form["metrics"]["f1"]["value"] == pytest.approx(2 / 3)
    assert "HotpotQA, solo: mean f1 0.667" in said
    with pytest.raises(ConfigError, match="Connection refused"):
        run(tmp_path / "b", "--player", "random", *words, "--option", service)


def test_a_reply_per_sample_and_task_is_asked_for_and_no_more(
    recorded: Recorded, tmp_path: Path
) -> None:
    data = f"test_data={rows(tmp_path, 'problems')}"
    _, found = run(
        tmp_path, "--suite", "aime", "--bench", "AIME24", "--player", "random", "--option", data
    )
    alone = found["benches"][0]
    assert alone["name"] == "AIME24"
    of_task = [one.task_id for one in recorded.asked[: 5 * 16]]
    assert {task: of_task.count(task) for task in of_task} == dict.fromkeys(
        (f"test-problems.jsonl:{n}" for n in range(1, 6)), 16
    )
    form = alone["forms"]["solo"]
    assert form["avg"]["value"] == 1 / 5, "4 is right for one of five sums"
    assert form["tasks"] == {f"test-problems.jsonl:{n}": float(n == 3) for n in range(1, 6)}  # 2+2
    assert form["majority_at"]["16"]["value"] == form["pass_at"]["16"]["value"] == 1 / 5


def test_truncation_of_one_kind_replaces_both_of_the_player(
    recorded: Recorded, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('title = "T"\n[[benches]]\nenv = "sudoku-v1"\nnum_tasks = 1\ntop_k = 3\n')
    run(tmp_path, "--suite", str(path), "--player", "random")
    assert {one.truncation for one in recorded.asked} == {Truncation(1.0, 3)}
    assert {one.temperature for one in recorded.asked} == {0.9}


def test_a_server_gets_top_p_and_top_k(tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    from servers import serving

    data = f"test_data={rows(tmp_path, 'code')}"
    with serving(lambda _: "<answer>def add(a, b):\n    return a + b</answer>") as server:
        run(tmp_path, server.url, "--suite", "apps", "--bench", "APPS", "--option", data)
    sent = {(one["temperature"], one["top_p"], one["top_k"], one["max_tokens"]) for one in
            server.asked}  # fmt: skip
    assert sent == {(0.6, 0.95, 20, 2048)}


def test_a_context_that_is_too_short_for_the_protocol_is_told(
    recorded: Recorded, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    words = [str(tmp_path / "model"), "--suite", "aime", "--bench", "AIME24, tool"]
    words += ["--option", f"test_data={rows(tmp_path, 'problems')}", "--samples", "1"]
    said, _ = run(tmp_path, *words)
    assert "replies may have 4,096 tokens in AIME24, tool and reasoner" in " ".join(said.split())
    assert "context of the engines is 2,048" in " ".join(said.split())
    again = tmp_path / "again"
    said, _ = run(again, *words, "inference.max_model_len=8192")
    assert "context of the engines" not in said


# Interrupted --------------------------------------------------------------------------------------


def test_what_is_interrupted_continues_and_repeats_nothing(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"test_data={rows(tmp_path, 'problems')}"
    words = ["--suite", "gsm8k", "--player", "solver", "--option", data]
    real = recorded.sample

    async def stopped(request: SampleRequest) -> list[Sample]:
        if len(recorded.asked) > 7:
            raise KeyboardInterrupt
        return await real(request)

    monkeypatch.setattr(recorded, "sample", stopped)
    said, found = run(tmp_path, *words, code=130)
    assert "1 benchmarks are in" in said
    assert [one["name"] for one in found["benches"]] == ["GSM8K"]
    first = len(recorded.asked)
    assert first >= 8
    monkeypatch.setattr(recorded, "sample", real)
    said, found = run(tmp_path, *words)
    assert "already done: GSM8K;" in said
    assert len(recorded.asked) - first == 5 * 2 * 3, "five debates of two in three rounds, no more"
    assert [one["name"] for one in found["benches"]] == ["GSM8K", "GSM8K, debate"]
    ids = [
        json.loads(line)["id"]
        for path in (tmp_path / "out" / "episodes").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(ids) == 10
