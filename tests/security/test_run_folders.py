"""A run's folder from another user: no command executes what it names, unless it is told to."""

import json
import shutil
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.config import load_config, to_toml
from pettingllms.errors import ConfigError, PettingError
from pettingllms.runs import RunFolder
from pettingllms.runs.trust import TRUST, remember_code

EVIL = """
from pathlib import Path
Path({marker!r}).write_text("executed")
from pettingllms.algos.grpo import Grpo
from pettingllms.envs.games.tic_tac_toe import TicTacToe
from pettingllms.judges.base import RuleJudge
class Env(TicTacToe): pass
class Algo(Grpo): pass
class Judge(RuleJudge): pass
"""
PLACES: dict[str, Callable[[dict[str, Any], str], None]] = {
    "env": lambda data, place: data["env"].update(id=f"{place}:Env"),
    "algo": lambda data, place: data["algo"].update(type=f"{place}:Algo"),
    "judge": lambda data, place: data.update(
        judge={"by": "evil", "judges": {"evil": {"kind": f"{place}:Judge"}}}
    ),
}
CONFIG = {
    "env": {"id": "tic_tac_toe-v1"},
    "algo": {"type": "grpo"},
    "policies": {
        "p": {"kind": "lora", "model": "m"},
        "s": {"kind": "scripted", "player": "random"},
    },
    "roles": {"player_x": "p", "player_o": "s"},
}
COMMANDS: dict[str, list[str]] = {
    "check": ["check", "RUN/config.toml"],
    "show-config": ["show-config", "RUN/config.toml"],
    "train": ["train", "RUN/config.toml", "--out", "OUT"],
    "sft": ["sft", "RUN/config.toml", "--out", "OUT"],
    "dpo": ["dpo", "RUN/config.toml", "RUN/episodes.jsonl", "--out", "OUT"],
    "rollout": ["rollout", "RUN/config.toml", "--out", "OUT"],
    "score": ["score", "RUN/episodes.jsonl"],
    "score by config": ["score", "RUN/episodes.jsonl", "--config", "RUN/config.toml"],
    "resume": ["resume", "RUN"],
    "eval": ["eval", "RUN"],
    "eval of the file": ["eval", "RUN/config.toml"],
    "eval of a suite": ["eval", "RUN", "--suite", "games"],
    "export": ["export", "RUN", "OUT"],
    "play": ["play", "tic_tac_toe-v1", "--player", "player_x=RUN"],
    "match": ["match", "tic_tac_toe-v1", "http://127.0.0.1:9/v1#m", "--against", "RUN"],
    "tournament": ["tournament", "tic_tac_toe-v1", "--player", "RUN", "--player", "random"],
    "verifier data": ["verifier", "data", "RUN/config.toml", "--out", "OUT"],
    "verifier train": ["verifier", "train", "RUN/config.toml", "RUN", "--out", "OUT"],
    "models tiny": ["models", "tiny", "OUT", "--config", "RUN/config.toml"],
    "view": ["view", "RUN", "--export", "OUT"],
    "plot": ["plot", "RUN"],
    "report": ["report", "RUN"],
    "simulate": ["simulate", "RUN/config.toml"],
    "simulate --calibrate": ["simulate", "RUN", "--calibrate", "--out", "OUT"],
}


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has run nothing yet, in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(TRUST, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "received"))


def received(
    tmp_path: Path, where: str, name: str = "evil.py", bare: bool = False
) -> tuple[Any, Any]:
    """The folder of a run that names its own module, and the file that this would write."""
    run, marker = tmp_path / "received", tmp_path / "marker"
    run.mkdir()
    (run / f"{name.removesuffix('.py')}.py").write_text(EVIL.format(marker=str(marker)))
    data = json.loads(json.dumps(CONFIG))
    PLACES[where](data, name)
    (run / "config.toml").write_text(tomli_w.dumps(data))
    if not bare:
        (run / "episodes.jsonl").write_text("")
        (run / "versions.json").write_text("{}")
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
        (run / "checkpoints").mkdir()
    return run, marker


def call(words: list[str], run: Path, *flags: str) -> str:
    out = run.parent / "out"
    given = [word.replace("RUN", str(run)).replace("OUT", str(out)) for word in words]
    done = CliRunner().invoke(app, [*flags, *given])
    return f"{done.exception or ''}{done.output}"


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_executes_a_file_of_a_received_run(
    command: str, where: str, tmp_path: Path
) -> None:
    run, marker = received(tmp_path, where)
    said = call(COMMANDS[command], run)
    assert not marker.exists(), said
    if command not in ("view", "plot", "report"):
        assert "--trust-run-code" in said


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("command", ["view", "plot", "report"])
def test_looking_at_a_received_run_executes_no_file_that_it_names_by_its_whole_path(
    command: str, where: str, tmp_path: Path
) -> None:
    run, marker = received(tmp_path, where)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("evil.py", str(run / "evil.py")))
    said = call(COMMANDS[command], run)
    assert not marker.exists(), said


@pytest.mark.parametrize("command", ["check", "show-config", "score", "resume", "eval"])
def test_no_command_imports_a_module_that_only_a_received_run_names(
    command: str, tmp_path: Path
) -> None:
    run, marker = received(tmp_path, "env", "evil_module")
    assert "--trust-run-code" in call(COMMANDS[command], run)
    assert not marker.exists()


@pytest.mark.parametrize("command", ["check", "show-config", "eval", "resume"])
def test_a_received_folder_with_nothing_but_a_configuration_is_no_exception(
    command: str, tmp_path: Path
) -> None:
    run, marker = received(tmp_path, "env", bare=True)
    assert "--trust-run-code" in call(COMMANDS[command], run)
    assert not marker.exists()


@pytest.mark.parametrize("command", ["check", "show-config", "score", "rollout"])
def test_the_flag_executes_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRUST, "0")  # put back afterwards, whatever the flag sets
    run, marker = received(tmp_path, "env")
    call(COMMANDS[command], run, "--trust-run-code")
    assert marker.exists()


def own_config(tmp_path: Path) -> Path:
    """A configuration that the user wrote, with an environment in a file beside it."""
    run, _ = received(tmp_path, "env", bare=True)
    project = tmp_path / "project"
    shutil.move(run, project)
    return Path(shutil.move(project / "config.toml", project / "mine.toml"))


def test_a_configuration_of_ones_own_needs_no_flag_and_neither_do_its_runs(tmp_path: Path) -> None:
    config = own_config(tmp_path)
    said = call(["rollout", str(config), "--out", "mine", "rollout.num_tasks=1"], tmp_path / "x")
    assert (tmp_path / "work" / "mine" / "episodes.jsonl").exists(), said
    for words in (["score", "mine/episodes.jsonl"], ["show-config", "mine/config.toml"]):
        assert "trust" not in call(words, tmp_path / "x")


def test_a_trained_run_of_ones_own_is_read_without_a_flag(tmp_path: Path) -> None:
    config = load_config(own_config(tmp_path))
    folder = RunFolder(tmp_path / "work" / "run")
    folder.create(config)
    assert folder.config() == config


def test_a_project_in_the_current_folder_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, marker = received(tmp_path, "env", bare=True)
    monkeypatch.chdir(run)
    assert "trust" not in call(["show-config", "config.toml"], run)
    assert marker.exists()


def test_what_the_command_line_names_in_place_of_the_run_is_the_users_own_word(
    tmp_path: Path,
) -> None:
    run, marker = received(tmp_path, "env")
    said = call(["show-config", "RUN/config.toml", "env.id=tic_tac_toe-v1"], run)
    assert "tic_tac_toe-v1" in said
    assert not marker.exists()


def test_code_in_a_run_folder_is_not_trusted_because_it_was_once(tmp_path: Path) -> None:
    """A second folder may be unpacked where a trusted one was."""
    run, marker = received(tmp_path, "env")
    remember_code(load_config(run / "config.toml"))
    marker.unlink()
    with pytest.raises(ConfigError, match="trust-run-code"):
        RunFolder(run).config()


@pytest.mark.parametrize(
    "name", ["pettingllms.evil.py:Env", "./pettingllms/evil.py:Env", "os:Env", "evil:pettingllms.x"]
)
def test_names_that_look_like_ours_are_not(name: str, tmp_path: Path) -> None:
    run = tmp_path / "received"
    run.mkdir()
    data = json.loads(json.dumps(CONFIG))
    data["env"]["id"] = name
    (run / "config.toml").write_text(tomli_w.dumps(data))
    with pytest.raises(ConfigError, match="trust-run-code"):
        RunFolder(run).config()


def test_a_run_that_names_only_what_ships_needs_no_flag(tmp_path: Path) -> None:
    run = tmp_path / "received"
    run.mkdir()
    config = tmp_path / "work" / "mine.toml"
    config.write_text(tomli_w.dumps(CONFIG))
    (run / "config.toml").write_text(to_toml(load_config(config)))
    assert RunFolder(run).config().env.id == "tic_tac_toe-v1"
    with pytest.raises(PettingError):
        RunFolder(tmp_path / "nothing").config()


@pytest.mark.parametrize("command", ["check", "show-config", "score", "resume", "eval"])
def test_no_command_contacts_a_server_that_a_received_run_names(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be given the API key that the folder names."""
    monkeypatch.setenv("SECRET", "a key of this user")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        run, _ = received(tmp_path, "env")
        config = run / "config.toml"
        data = tomllib.loads(config.read_text())
        data["env"] = {"id": f"openenv:http://127.0.0.1:{server.getsockname()[1]}", "key": "SECRET"}
        config.write_text(tomli_w.dumps(data))
        assert "--trust-run-code" in call(COMMANDS[command], run)
        with pytest.raises(TimeoutError):
            server.accept()
