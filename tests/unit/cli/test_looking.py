"""`view --export`, `plot` and `report` from the command line."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner
from viewed import rolled, write_run

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looking")
    write_run(folder / "run", rolled(folder / "r", 12), 4)
    return folder / "run"


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    return str(caught.value)


def test_a_run_becomes_one_file(run: Path, tmp_path: Path) -> None:
    said = call("view", run, "--export", tmp_path / "run.html", "--episodes", 5)
    assert "5 of 12 episodes" in " ".join(said.split())
    text = (tmp_path / "run.html").read_text()
    assert text.count("Content-Security-Policy") == 1
    assert str(run) not in text, "where it was on this machine is nobody's business"


def test_courses_are_printed_and_reports_written(run: Path, tmp_path: Path) -> None:
    said = call("plot", run, "--metric", "reward")
    assert "planner" in said
    assert "▁" in said
    call("report", run, "--out", tmp_path / "r.md")
    assert "## Training setup" in (tmp_path / "r.md").read_text()
    call("report", run, "--out", tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert "Training setup" in call("report", run)


def test_what_cannot_be_done_is_said(run: Path, tmp_path: Path) -> None:
    assert "must end in .png or .svg" in refused("plot", run, "--out", tmp_path / "x.pdf")
    assert "must end in .md or .html" in refused("report", run, "--out", tmp_path / "x.txt")
    assert "expected at most 2" in refused("view", run, run, run)
    assert "step or tokens" in refused("plot", run, "--x", "time")


def test_a_port_that_is_taken_is_named(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("view", run, "--no-browser", "--port", port)
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use); 0 takes a free" in said
