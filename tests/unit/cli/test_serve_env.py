"""`pettingllms serve-env` without OpenEnv: what it says then, and where it continues."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pettingllms.cli import serve_env
from pettingllms.cli.main import app
from pettingllms.errors import ConfigError


def said_by(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve-env", *arguments])
    assert isinstance(result.exception, ConfigError), result.output
    return str(result.exception)


@pytest.fixture(autouse=True)
def _no_openenv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(serve_env.VARIABLE, raising=False)
    monkeypatch.setattr(serve_env, "_has_openenv", lambda: False)


def test_a_protocol_must_be_named() -> None:
    assert "add --openenv" in said_by("tic_tac_toe-v1")


def test_without_openenv_it_says_how_to_get_it() -> None:
    said = said_by("tic_tac_toe-v1", "--openenv")
    assert "scripts/openenv.sh FOLDER" in said
    assert "PETTINGLLMS_OPENENV=FOLDER" in said


def test_a_folder_without_openenv_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve_env.VARIABLE, str(tmp_path))
    assert f"{tmp_path} has no openenv" in said_by("tic_tac_toe-v1", "--openenv")
    monkeypatch.setenv(serve_env.VARIABLE, sys.prefix)
    assert "has no openenv" in said_by("tic_tac_toe-v1", "--openenv")


def test_it_continues_with_the_python_that_has_openenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.touch()
    called: list[Any] = []

    def execute(path: Any, arguments: Any) -> None:
        called.append((path, arguments))
        raise SystemExit

    monkeypatch.setenv(serve_env.VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "execv", execute)
    monkeypatch.setattr(sys, "argv", ["pettingllms", "serve-env", "tic_tac_toe-v1", "--openenv"])
    CliRunner().invoke(app, ["serve-env", "tic_tac_toe-v1", "--openenv"])
    command = [str(python), "-m", "pettingllms", "serve-env", "tic_tac_toe-v1", "--openenv"]
    assert called == [(python, command)]


def test_a_port_in_use_is_named() -> None:
    with serve_env._listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve_env._listen("127.0.0.1", port)
