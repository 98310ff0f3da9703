"""`quickstart` teaches, then trains from what was taught, and says what came of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pettingllms.cli import quickstart as quick
from pettingllms.cli.main import app
from pettingllms.config import load_config
from pettingllms.errors import ConfigError


class Pretended:
    """Writes what engines would leave behind; `tests/integration` has real ones."""

    def make_model(self, model: Any, envs: Any, seed: int, out: Path) -> None:
        out.mkdir(parents=True)

    def warm_start(self, config: Any, folder: Any, out: Path, callback: Any) -> None:
        assert config.policies["shared"].model.endswith("made")
        out.mkdir()

    def train(self, config: Any, folder: Any, callback: Any) -> None:
        assert config.policies["shared"].model.endswith("taught")
        solved = [0.2, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
        rows = [json.dumps({"step": n, "roles/checker/success": s}) for n, s in enumerate(solved)]
        (folder.path / "metrics.jsonl").write_text("\n".join(rows))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "ThisMachine", Pretended)
    monkeypatch.setattr(quick, "inspect", lambda *_: [])


@pytest.mark.usefixtures("pretended")
def test_it_says_how_much_was_learnt_and_how_to_look(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["quickstart", "--out", str(tmp_path / "q")])
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "25% in the first 2 steps, 75% in the last 2" in told
    assert f"pettingllms view {tmp_path / 'q' / 'run'}" in told


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
    assert not (tmp_path / "q" / "taught").exists()


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
