"""`init` makes a project that can be tested, checked and played as it is."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pettingllms.cli import init as projects
from pettingllms.cli.main import app, main
from pettingllms.types import read_episodes


def run(*args: str) -> str:
    result = CliRunner().invoke(app, list(args))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as it is made where no engine is installed."""
    monkeypatch.setattr(projects, "find_spec", lambda _: None)
    folder = tmp_path / "mine"
    told = run("init", str(folder))
    assert "pettingllms train config.toml" in told
    assert "pettingllms models tiny model" in told, "without PyTorch it says how to get a model"
    return folder


def test_its_own_tests_pass(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_it_keeps_the_contract_and_its_configuration_is_read(project: Path) -> None:
    assert "keeps the environment contract" in run("check-env", f"{project / 'signals.py'}:Signals")
    assert "signals.py:Signals" in run("show-config", str(project / "config.toml"))


def test_the_scripted_player_succeeds_and_random_replies_mostly_fail(project: Path) -> None:
    success = {}
    for player in ("in_order", "random"):
        out = project / player
        run("rollout", str(project / "config.toml"), "--player", player, "--out", str(out))
        episodes = list(read_episodes(out / "episodes.jsonl"))
        success[player] = sum(episode.success["receiver"] for episode in episodes) / len(episodes)
    assert success["in_order"] == 1.0
    assert 0 < success["random"] < 0.7


def test_a_folder_that_is_not_empty_is_left_alone(monkeypatch, capsys, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    monkeypatch.setattr("sys.argv", ["pettingllms", "init", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "new or empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_every_file_of_the_template_is_written(project: Path) -> None:
    kept = [path.name for path in projects.TEMPLATE.iterdir() if path.is_file()]
    assert sorted(kept) == sorted(projects.FILES)
    assert sorted(path.name for path in project.iterdir()) == sorted(projects.FILES)
