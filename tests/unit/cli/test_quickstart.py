"""`quickstart` teaches, then trains from what was taught, and says what came of it."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pettingllms.cli import quickstart as quick
from pettingllms.cli.main import app
from pettingllms.config import load_config
from pettingllms.errors import ConfigError
from pettingllms.types import Episode, Message, Task, Turn


class Pretended:
    """Writes what engines would leave behind; `tests/integration` has real ones."""

    def make_model(self, model: Any, envs: Any, seed: int, out: Path) -> None:
        out.mkdir(parents=True)

    def warm_start(self, config: Any, folder: Any, out: Path, callback: Any) -> None:
        assert config.policies["shared"].model.endswith("made")
        out.mkdir()

    def train(self, config: Any, folder: Any, callback: Any) -> None:
        assert config.policies["shared"].model.endswith("warm_started")


def played(config: Any, saved: Any, out: Path) -> quick.Tested:
    """The first of four mazes is solved before training, the first three after it."""
    made = [episode(at, solved=at < (3 if "after" in out.name else 1)) for at in range(4)]
    return quick.Tested(sum(one.success["checker"] for one in made) / 4, made)


def episode(at: int, solved: bool) -> Episode:
    """An episode of one turn in maze `at`."""
    reply = "right" if solved else "wrong"
    maze = Message("user", f"maze {at}")
    turn = Turn("checker", "shared", (maze,), (1,), (2,), None, reply, 0)
    task = Task(f"test/{at}", {})
    return Episode(f"e{at}", "plan_path-v1", task, at, [turn], success={"checker": solved})


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "ThisMachine", Pretended)
    monkeypatch.setattr(quick, "inspect", lambda *_: [])
    monkeypatch.setattr(quick, "test", played)
    monkeypatch.setattr(quick, "shared_ray", lambda _: nullcontext())
    monkeypatch.setattr(quick.RunFolder, "newest", lambda *_: (None, {}))


@pytest.mark.usefixtures("pretended")
def test_it_says_how_much_was_learned_and_how_to_look(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["quickstart", "--no-open", "--out", str(tmp_path / "q")])
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "solves 25% of 4 test mazes" in told
    assert "Test mazes solved: 25% before training, 75% after." in told
    assert f"pettingllms view {tmp_path / 'q' / 'run'}" in told


@pytest.mark.usefixtures("pretended")
def test_it_shows_mazes_that_training_solved_before_and_after(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["quickstart", "--no-open", "--out", str(tmp_path / "q")])
    lines = [line for line in result.output.splitlines() if "checker:" in line]
    assert [("wrong" in line, "right" in line) for line in lines] == [(True, True)] * 2
    assert "maze 1" in result.output
    assert "maze 0" not in result.output, "it was solved before training"
    assert "maze 3" not in result.output, "it is not solved after training"


@pytest.mark.usefixtures("pretended")
def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigError, match="--out"):
        quick.run_quickstart(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("pretended")
def test_what_would_stop_it_is_said_before_it_teaches(tmp_path: Path, monkeypatch: Any) -> None:
    found = quick.Finding("problem", "inference.engine: needs ray", "pip install it")
    monkeypatch.setattr(quick, "inspect", lambda *_: [found])
    with pytest.raises(ConfigError, match="needs ray; pip install it"):
        quick.run_quickstart(tmp_path / "q", [])
    assert not (tmp_path / "q" / "warm_started").exists()


@pytest.mark.usefixtures("pretended")
def test_a_wrong_key_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'num_steps'"):
        quick.run_quickstart(tmp_path / "q", ["train.num_stps=3"])
    assert not (tmp_path / "q").exists()


def test_its_configuration_needs_no_gpu_and_no_download() -> None:
    config = load_config(quick.CONFIG)
    assert config.inference.engine == "torch"
    assert config.cluster.device == "cpu"
    assert config.log.episodes, "there is something to view"
