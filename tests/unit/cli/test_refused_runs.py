"""A run that is refused leaves nothing that would refuse the next one."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")

from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import LearnerError, PettingError
from pettingllms.runs.folder import RunFolder

CONFIG = """
env = {id = "plan_path-v1"}
algo = {type = "grpo"}
policies = {p = {kind = "full", model = "m"}}
"""


def refused(command: str, out: Path) -> str:
    config = out.parent / "config.toml"
    config.write_text(CONFIG)
    result = CliRunner().invoke(app, [command, str(config), "--out", str(out)])
    assert isinstance(result.exception, PettingError), result.exception
    return str(result.exception)


@pytest.mark.parametrize(
    ("command", "reason"), [("sft", "no episodes to learn from"), ("dpo", "give files")]
)
def test_a_refused_command_can_be_given_again(command: str, reason: str, tmp_path: Path) -> None:
    for _ in range(2):
        assert reason in refused(command, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_was_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    refused("sft", tmp_path / "run")
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("did_something", [False, True])
def test_a_run_that_did_something_is_kept(
    did_something: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: Any, folder: RunFolder, callback: Any) -> None:
        (folder.path / "metrics.jsonl").write_text('{"step": 1}\n' * did_something)
        raise LearnerError("not finite")

    monkeypatch.setattr("pettingllms.training.train.train", train)
    assert "not finite" in refused("train", tmp_path / "run")
    assert (tmp_path / "run" / "config.toml").is_file() == did_something


def test_an_earlier_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("of an earlier run")
    assert "already has a run" in refused("sft", tmp_path / "run")
    assert (tmp_path / "run" / "config.toml").read_text() == "of an earlier run"


def test_the_folder_of_a_rollout_cannot_be_resumed_as_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pettingllms.training.train.train", lambda *_: pytest.fail("it was trained")
    )
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "episodes.jsonl").touch()
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert "written by `pettingllms rollout`" in str(result.exception)


def test_a_file_of_episodes_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    words = ["dpo", str(tmp_path / "config.toml"), "nowhere.jsonl", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert "no file nowhere.jsonl; episodes of a run are RUN/episodes" in str(result.exception)


def test_an_export_without_a_checkpoint_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    result = CliRunner().invoke(app, ["export", str(tmp_path), str(tmp_path / "out")])
    assert "has no checkpoint yet" in str(result.exception)
    assert "before training" not in result.output
