"""Viewing a run executes none of its code."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from viewed import rolled, write_run

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError, RecordError
from pettingllms.viewer.endpoints import Endpoints, metric_columns
from pettingllms.viewer.episode_index import open_index
from pettingllms.viewer.sources import open_run


def test_an_environment_or_algorithm_in_a_file_is_not_imported(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    trap = tmp_path / "run" / "trap.py"
    trap.write_text("raise SystemExit('this file was run')\n")
    config = tmp_path / "run" / "config.toml"
    text = config.read_text()
    config.write_text(text.replace('"plan_path-v1"', f'"{trap}:Env"'))
    assert open_run(tmp_path / "run").config is not None
    config.write_text(text.replace('"at_grpo"', f'"{trap}:Algo"'))
    run = open_run(tmp_path / "run")
    assert run.config is None
    assert "not built in" in run.problem
    index = open_index(run)
    index.update()
    assert Endpoints([index]).episode(0, 1)["turns"], "the episodes are still shown"


def test_a_configuration_of_another_version_is_no_obstacle(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    with (tmp_path / "run" / "config.toml").open("a") as file:
        file.write("\n[newer]\nkey = 1\n")
    run = open_run(tmp_path / "run")
    assert "unsupported config" in run.problem
    assert run.settings["newer"] == {"key": 1}


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_a_run_is_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="run"):
        open_run(tmp_path / name)


def test_metrics_that_are_being_written_or_were_written_twice(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text('{"step": 1, "a": 1}\n{"step": 2, "a": 2}\n{"step": 2, "a": 3}\n{"step": 3,')
    assert open_run(tmp_path / "run").metrics() == [{"step": 1, "a": 1}, {"step": 2, "a": 3}]


@pytest.mark.parametrize(
    "line",
    ["{", "\0" * 64, "[]", '{"a": 1}', '{"step": "2"}', '{"step": 2, "a": NaN}',
     '{"step": 2, "a": "x"}', '{"step": 2, "a": 1e999}', "\N{LATIN SMALL LETTER E WITH ACUTE}"],
)  # fmt: skip
def test_a_damaged_line_of_metrics_is_named(tmp_path: Path, line: str) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.write_text('{"step": 1, "a": 1}\n' + line + '\n{"step": 3, "a": 1}\n', "latin-1")
    run = open_run(tmp_path / "run")
    with pytest.raises(RecordError, match=r"metrics\.jsonl, line 2: .*delete the line"):
        run.metrics()
    for words in (["plot"], ["report"], ["view", "--export", str(tmp_path / "page.html")]):
        result = CliRunner().invoke(app, [*words, str(tmp_path / "run")])
        assert isinstance(result.exception, RecordError)


@pytest.mark.parametrize("text", ["", "[]", "{", "\0"])
def test_damaged_versions_are_named(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    (tmp_path / "run" / "versions.json").write_text(text)
    with pytest.raises(RecordError, match=r"versions\.json: .*delete the file"):
        open_run(tmp_path / "run").versions()


def test_settings_without_a_json_value_become_text(tmp_path: Path) -> None:
    write_run(tmp_path / "run", rolled(tmp_path / "r", 2), 1)
    with (tmp_path / "run" / "config.toml").open("a") as file:
        file.write("\n[newer]\nmost = inf\nwhen = [1979-05-27]\nfew = 1.5\nyes = true\n")
    index = open_index(open_run(tmp_path / "run"))
    (run,) = json.loads(json.dumps(Endpoints([index]).overview(), allow_nan=False))["runs"]
    newer = {"most": "inf", "when": ["1979-05-27"], "few": 1.5, "yes": True}
    assert run["settings"]["newer"] == newer


def test_long_runs_are_thinned_by_means_and_gaps_stay_gaps() -> None:
    rows = [{"step": n, "a": float(n), **({"b": 1.0} if n == 7 else {})} for n in range(1, 11)]
    assert metric_columns(rows, 5) == {
        "num_steps": 10,
        "steps_per_point": 2,
        "steps": [2, 4, 6, 8, 10],
        "series": {"a": [1.5, 3.5, 5.5, 7.5, 9.5], "b": [None, None, None, 1.0, None]},
    }
