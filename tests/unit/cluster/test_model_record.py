"""A run records the revision of its models and is not resumed with another one."""

import json
from pathlib import Path

import pytest

from pettingllms.cluster.checks import MODELS_FILE, check_models
from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import CheckpointError
from pettingllms.models.revision import write_source


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "models" / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_source(folder, "a/b", "hub", "abc")
    return folder


@pytest.fixture
def config() -> RunConfig:
    return parse_config(
        {
            "env": {"id": "plan_path-v1"},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": "a/b"}},
        }
    )


def test_check_models_records_the_revision(model: Path, config: RunConfig, tmp_path: Path) -> None:
    check_models(config, tmp_path)
    record = json.loads((tmp_path / MODELS_FILE).read_text())
    assert record["a/b"]["revision"] == "abc"
    assert record["a/b"]["weights"] == {"model.safetensors": 7}
    check_models(config, tmp_path)


def test_check_models_refuses_another_revision(
    model: Path, config: RunConfig, tmp_path: Path
) -> None:
    check_models(config, tmp_path)
    write_source(model, "a/b", "hub", "later")
    with pytest.raises(CheckpointError, match="revision then: abc, now: later"):
        check_models(config, tmp_path)


def test_check_models_refuses_other_weights_without_a_revision(
    model: Path, config: RunConfig, tmp_path: Path
) -> None:
    (model / "pettingllms_source.json").unlink()
    check_models(config, tmp_path)
    (model / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(CheckpointError, match="changed since this run started"):
        check_models(config, tmp_path)
