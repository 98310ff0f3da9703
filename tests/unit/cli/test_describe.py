"""`init --describe` with a scripted endpoint."""

import json
import tomllib
from pathlib import Path

import pytest
from chat_servers import reply, serving
from typer.testing import CliRunner

from pettingllms.cli.describe import source_in
from pettingllms.cli.init import TEMPLATE
from pettingllms.cli.main import app
from pettingllms.grading.grader import missing_isolation

pytest.importorskip("httpx")
pytestmark = pytest.mark.skipif(bool(missing_isolation()), reason=missing_isolation() or "possible")
VALID = (TEMPLATE / "signals.py").read_text()
SYNTAX = "class Broken(:\n    pass\n"
RANDOM = VALID.replace('str(task.data["color"])', "random.choice(COLORS)")
NO_PLAYER = VALID.replace('"random": random_reply, ', "")


def fenced(source: str) -> tuple[int, object]:
    return reply(f"Here it is.\n\n```python\n{source}```\nDone.")


def init(folder: Path, url: str, *more: str) -> tuple[int, str]:
    words = ["init", str(folder), "--describe", "a signaling game", "--url", url, "--model", "m"]
    result = CliRunner().invoke(app, [*words, *more])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mine"


def test_a_valid_draft_becomes_a_project(folder: Path) -> None:
    with serving([fenced(VALID)]) as (url, asked):
        code, output = init(folder, url)
    assert code == 0
    assert "draft 1/3: no faults" in output
    assert "read it before you run it" in output
    assert (folder / "env.py").read_text() == VALID
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["env"]["id"] == "env.py:Signals"
    compile((folder / "test_env.py").read_text(), "test_env.py", "exec")
    (call,) = asked
    assert call["body"]["model"] == "m"
    assert "a signaling game" in json.dumps(call["body"]["messages"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SYNTAX, "[does-not-load] SyntaxError"),
        (RANDOM, "[reset-not-repeatable]"),
        (NO_PLAYER, "[no-random-player]"),
    ],
)
def test_an_invalid_draft_is_shown_with_its_faults(folder: Path, source: str, message: str) -> None:
    with serving([fenced(source)]) as (url, asked):
        code, output = init(folder, url, "--tries", "2")
    assert code == 1
    assert message in output
    assert "No draft kept the contract" in output
    assert (folder / "env.py").read_text() == source
    assert not (folder / "config.toml").exists()
    assert len(asked) == 2


def test_the_endpoint_sees_the_faults_of_its_last_draft(folder: Path) -> None:
    with serving([fenced(RANDOM), fenced(VALID)]) as (url, asked):
        code, output = init(folder, url)
    assert code == 0
    assert "draft 1/3" in output
    assert "draft 2/3: no faults" in output
    last = asked[1]["body"]["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert "reset-not-repeatable" in last[-1]["content"]


def test_a_server_that_does_not_answer_is_named(folder: Path) -> None:
    with serving([(404, {"error": "no model"})]) as (url, _):
        words = ["init", str(folder), "--describe", "x", "--url", url, "--model", "m"]
        result = CliRunner().invoke(app, words)
    assert "did not answer: HTTP 404" in str(result.exception)
    assert not folder.exists()


def test_the_server_and_the_model_must_be_named(folder: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(folder), "--describe", "x"])
    assert result.exit_code == 2
    assert "--url and --model" in result.output


def test_files_are_never_overwritten(folder: Path) -> None:
    folder.mkdir()
    (folder / "mine.txt").touch()
    with serving([fenced(VALID)]) as (url, asked):
        words = ["init", str(folder), "--describe", "x", "--url", url, "--model", "m"]
        result = CliRunner().invoke(app, words)
    assert "not empty" in str(result.exception)
    assert asked == []


def test_source_in_takes_the_longest_block() -> None:
    assert source_in("```python\na = 1\n```\n```\nb = 22222\n```") == "b = 22222\n"
    assert source_in("a = 1") == "a = 1"
