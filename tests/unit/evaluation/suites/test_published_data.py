"""Suites on the published files: each test problem once, an expert at 100%, a wrong player at 0%.

The files are not part of this repository; see `../shared/data`, or set PETTINGLLMS_DATA.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("ray")

from pettingllms.cli.main import app

DATA = Path(os.environ.get("PETTINGLLMS_DATA", Path(__file__).parents[5] / "shared" / "data"))


def run(folder: Path, suite: str, bench: str, data: str, player: str, *args: str) -> Any:
    """The one result of a suite on a published file."""
    file = DATA / data.partition(":")[2].partition("?")[0]
    if not file.exists():
        pytest.skip(f"no {file}; set PETTINGLLMS_DATA to a folder with it")
    out = folder / player
    words = ["eval", "--suite", suite, "--bench", bench, "--player", player, "--out", str(out)]
    format_, _, name = data.partition(":")
    source = f"{DATA / name}" if format_ == "code" else f"{format_}:{DATA / name}"
    result = CliRunner().invoke(app, [*words, "--option", f"test_data={source}", *args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads((out / "results.json").read_text())["benches"][-1]


def share(result: Any) -> float:
    (form,) = result["forms"].values()
    assert form["failed"] == {}
    assert form["num_truncated"] == 0
    value: float = form["avg"]["value"]
    return value


@pytest.mark.parametrize(
    ("suite", "bench", "data", "count"),
    [
        ("aime", "AIME24", "aime:aime24/test.jsonl", 30),
        ("gsm8k", "GSM8K", "gsm8k:gsm8k/test.jsonl?rows=0..80", 80),
        ("svamp", "SVAMP", "svamp:svamp/test.jsonl?rows=0..80", 80),
        ("math500", "MATH-500", "math:math/test.json?rows=0..80", 80),
        ("olympiad", "OlympiadBench", "olympiadbench:olympiadbench/test.jsonl?rows=60..125", 65),
        ("anli", "ANLI r1", "anli:anli/r1_dev.csv?rows=0..60", 60),
        ("anli", "ANLI r2", "anli:anli/r2_dev.csv?rows=0..60", 60),
        ("anli", "ANLI r3", "anli:anli/r3_dev.csv?rows=0..60", 60),
        ("maporl", "GSM8K, debate", "gsm8k:gsm8k/test.jsonl?rows=0..40", 40),
    ],
)
def test_experts_and_wrong_players_have_the_scores_that_they_must(
    tmp_path: Path, suite: str, bench: str, data: str, count: int
) -> None:
    args = ["--samples", "1"]
    right = run(tmp_path, suite, bench, data, "solver", *args)
    assert share(right) == 1.0
    wrong = run(tmp_path, suite, bench, data, "wrong", *args)
    assert share(wrong) == 0.0
    (form,) = right["forms"].values()
    assert form["num_tasks"] == len(form["tasks"]) == count
    if suite == "maporl":
        assert set(form["metrics"]) == {f"success_in_round_{n}" for n in (1, 2, 3)}
        assert all(one["value"] == 1.0 for one in form["metrics"].values())


@pytest.mark.slow
def test_all_means_every_test_problem_once(tmp_path: Path) -> None:
    found = run(tmp_path, "gsm8k", "GSM8K", "gsm8k:gsm8k/test.jsonl", "noisy")
    played = (tmp_path / "noisy" / "episodes" / "gsm8k-solo.jsonl").read_text().splitlines()
    asked = [json.loads(line)["task"]["data"]["question"] for line in played]
    rows = (DATA / "gsm8k" / "test.jsonl").read_text().splitlines()
    assert sorted(asked) == sorted(json.loads(row)["question"].strip() for row in rows)
    assert len(asked) == 1319
    assert (found["name"], found["forms"]["solo"]["num_tasks"]) == ("GSM8K", 1319)


def test_a_player_that_is_right_half_of_the_time_has_half(tmp_path: Path) -> None:
    """480 episodes: six standard deviations are 14 points."""
    found = run(tmp_path, "aime", "AIME24", "aime:aime24/test.jsonl", "noisy")
    form = found["forms"]["solo"]
    assert (form["num_tasks"], form["num_samples"], form["k"]) == (30, 16, 16)
    assert form["avg"]["value"] == pytest.approx(0.5, abs=0.14)
    assert form["pass_at"]["1"] == form["avg"]
    assert form["pass_at"]["16"]["value"] > 0.99


def test_known_programs_of_mbpp_pass_and_others_fail(tmp_path: Path) -> None:
    data = "code:mbpp/mbpp.jsonl?rows=10..40"
    right = run(tmp_path, "mbpp", "MBPP", data, "right")
    assert right["forms"]["solo"]["num_tasks"] == 30
    assert share(right) == 1.0
    assert share(run(tmp_path, "mbpp", "MBPP", data, "wrong")) == 0.0
