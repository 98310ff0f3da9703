"""Differences between two results files are paired by task, and only where tasks are the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("ray")

from pettingllms.cli.main import app
from pettingllms.errors import RecordError
from pettingllms.evaluation.suites.comparison import read_baseline
from pettingllms.runs.scores import estimate, newcombe, paired_difference, resampled

MINE = """
title = "Mine"
[[benches]]
env = "sudoku-v1"
num_tasks = 12
num_samples = 2
{more}
"""


def run(folder: Path, player: str, *args: str, more: str = "") -> tuple[str, dict[str, Any], Path]:
    folder.mkdir(exist_ok=True)
    (folder / "suite.toml").write_text(MINE.format(more=more))
    words = ["eval", "--suite", str(folder / "suite.toml"), "--player", player]
    result = CliRunner().invoke(app, [*words, "--out", str(folder), *args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    file = folder / "results.json"
    return " ".join(result.output.split()), json.loads(file.read_text()), file


def test_a_difference_is_that_of_each_task(tmp_path: Path) -> None:
    _, _, expert = run(tmp_path / "a", "backtracking")
    _, before, noisy = run(tmp_path / "b", "noisy")
    said, found, _ = run(tmp_path / "c", "noisy", "--seed", "5", "--compare", str(expert))
    (one,) = found["comparisons"]
    share = found["benches"][0]["forms"]["team"]["avg"]["value"]
    assert one["difference"]["value"] == pytest.approx(share - 1)
    assert one["difference"]["low"] < share - 1 < one["difference"]["high"] <= 0
    assert (one["num_tasks"], one["num_unpaired"], one["baseline"]) == (12, 0, "backtracking")
    assert f"sudoku, team: {100 * (share - 1):+.1f} points [" in said
    assert "against backtracking, paired over 12 tasks." in said
    assert found["compared_with"] == str(expert)
    assert before["comparisons"] == []
    _, same, _ = run(tmp_path / "d", "noisy", "--compare", str(noisy.parent))
    assert same["comparisons"][0]["difference"]["value"] == 0, "the folder names its results"


def test_tasks_that_only_one_file_has_are_left_out(tmp_path: Path) -> None:
    _, _, file = run(tmp_path / "a", "backtracking")
    said, found, _ = run(tmp_path / "b", "backtracking", "--tasks", "5", "--compare", str(file))
    (one,) = found["comparisons"]
    assert (one["num_tasks"], one["num_unpaired"]) == (5, 7)
    assert "paired over 5 tasks; 7 others are left out." in said


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("options = { size = 9 }", "its tasks come from other data or other options"),
        ('name = "other"', "has no such result"),
        ("options = { solo = true }", "has no such result"),
    ],
)
def test_other_tasks_and_forms_are_not_compared(tmp_path: Path, more: str, reason: str) -> None:
    _, _, file = run(tmp_path / "a", "random")
    said, found, _ = run(tmp_path / "b", "random", "--compare", str(file), more=more)
    (one,) = found["comparisons"]
    assert one["difference"] is None
    assert reason in one["reason"]
    assert "no comparison with random" in said


def test_the_same_data_in_another_place_is_the_same_tasks(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(4)]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    sources = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rows.jsonl").write_text(text)
        sources.append(f"test_data={tmp_path / place / 'rows.jsonl'}")
    words = ["eval", "--suite", "gsm8k", "--bench", "debate"]

    def measured(source: str, player: str, out: str, *more: str) -> dict[str, Any]:
        out_words = ["--player", player, "--option", source, "--out", str(tmp_path / out), *more]
        result = CliRunner().invoke(app, [*words, *out_words])
        assert result.exit_code == 0, result.output
        return json.loads((tmp_path / out / "results.json").read_text())

    measured(sources[0], "solver", "a")
    file = str(tmp_path / "a" / "results.json")
    (one,) = measured(sources[1], "wrong", "b", "--compare", file)["comparisons"]
    assert (one["difference"]["value"], one["num_tasks"]) == (-1, 4)
    (tmp_path / "there" / "rows.jsonl").write_text(text.replace('"4"', '"5"'))
    (other,) = measured(sources[1], "wrong", "c", "--compare", file)["comparisons"]
    assert "other data" in other["reason"], "the same ids, but another answer"


def test_files_without_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such file; give a results.json"):
        read_baseline(tmp_path / "none.json")
    (tmp_path / "results.json").write_text('{"benches": []}')
    with pytest.raises(RecordError, match="is not a results file"):
        read_baseline(tmp_path)
    old = {"format": 3, "player": {"name": "x"}, "benches": [{}]}
    (tmp_path / "results.json").write_text(json.dumps(old))
    with pytest.raises(RecordError, match="has format 3; expected 4"):
        read_baseline(tmp_path / "results.json")


def test_a_missing_file_is_found_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such file"):
        run(tmp_path, "random", "--compare", str(tmp_path / "none.json"))
    assert not (tmp_path / "results.json").exists()


# Intervals ----------------------------------------------------------------------------------------


def test_pairing_removes_what_tasks_have_in_common() -> None:
    hard = [float(n % 2) for n in range(40)]
    better = [value if n % 8 else 1.0 for n, value in enumerate(hard)]
    found = paired_difference(better, hard)
    assert found.value == pytest.approx(5 / 40)
    assert 0 < found.low < found.value < found.high < 0.3
    apart = newcombe(found.value, estimate(better), estimate(hard))
    assert apart.low < 0 < found.low, "without pairing, the interval would include 0"


def test_few_tasks_that_differ_have_a_wide_interval() -> None:
    found = paired_difference([1.0] * 30, [1.0] * 30)
    assert found.low < found.value == 0 < found.high
    assert paired_difference([1.0] * 3, [0.0] * 3).value == 1


def test_means_of_any_size_have_intervals() -> None:
    found = resampled([0.0, 25.0, 12.0, 13.0, 25.0, 0.0])
    assert found.value == 12.5
    assert 0 < found.low < 12.5 < found.high < 25
    assert resampled([7.0]).low == resampled([7.0]).high == 7.0
