import json
import os
import stat
from pathlib import Path

import pytest

from pettingllms.errors import ModelError
from pettingllms.models import find_model
from pettingllms.models.folder import faults_of, kept_models, models_folder, whole

NAME = "some/model-1.5B"


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


def fill(folder: Path, *names: str) -> Path:
    for name in names or ("config.json", "model.safetensors", "tokenizer.json"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return folder


def test_a_folder_is_found_by_its_path(tmp_path: Path) -> None:
    folder = fill(tmp_path / "mine")
    assert find_model(str(folder)) == folder
    assert find_model("mine") == folder
    assert find_model("./mine/../mine") == folder


def test_a_name_is_found_in_the_models_folder(models: Path) -> None:
    for name in (NAME, "tiny"):
        fill(models / name)
        assert find_model(name) == models / name
    assert list(kept_models()) == [NAME, "tiny"]


def test_the_models_folder_is_in_the_cache_unless_it_is_said(monkeypatch) -> None:
    monkeypatch.delenv("PETTINGLLMS_MODELS")
    assert models_folder() == Path.home() / ".cache" / "pettingllms" / "models"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (NAME, f"run `pettingllms models get {NAME}`"),
        ("tiny-llama", "run `pettingllms models tiny "),
        ("../secret", "expected a folder with a config.json"),
        ("/nowhere/at/all", "expected a folder with a config.json"),
        ("a/b/c", "expected a folder with a config.json"),
        ("", "expected a folder with a config.json"),
    ],
)
def test_a_model_that_is_not_here_says_what_to_do(name: str, advice: str) -> None:
    with pytest.raises(ModelError, match="(not found|is not a model)") as caught:
        find_model(name)
    assert advice in str(caught.value)


def test_a_name_never_leaves_the_models_folder(models: Path, tmp_path: Path, monkeypatch) -> None:
    fill(tmp_path / "secret")
    monkeypatch.chdir(fill(tmp_path / "elsewhere", "x"))
    models.mkdir()
    assert (models / "../secret/config.json").is_file()
    with pytest.raises(ModelError):
        find_model("x/../../secret")


def test_a_folder_without_a_model_is_not_taken_for_a_name(tmp_path: Path, models: Path) -> None:
    fill(models / "tiny")
    fill(tmp_path / "tiny", "notes.txt")
    with pytest.raises(ModelError, match="config.json"):
        find_model("tiny")


@pytest.mark.parametrize("complete", [True, False])
def test_the_hub_cache_counts_if_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repo = tmp_path / "hub" / "models--some--model-1.5B"
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = fill(repo / "snapshots" / commit, "config.json", "tokenizer.json", "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    fill(repo / "refs", "main").joinpath("main").write_text(commit)
    if complete:
        fill(snapshot, "b.safetensors")
        assert find_model(NAME) == snapshot
    else:
        with pytest.raises(ModelError, match="not found"):
            find_model(NAME)


def test_a_whole_model_has_no_faults(tmp_path: Path) -> None:
    assert faults_of(fill(tmp_path / "m")) == []


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["config.json", "tokenizer.json"], "model.safetensors is missing"),
        (["config.json", "model.safetensors"], "a tokenizer is missing"),
        (["model.safetensors", "tokenizer.json"], "config.json is missing"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, names: list[str], fault: str) -> None:
    assert fault in "; ".join(faults_of(fill(tmp_path / "m", *names)))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "x.pt", "a/b.pkl", "modeling.py", "x.pth"])
def test_pickles_and_code_are_faults(tmp_path: Path, name: str) -> None:
    faults = faults_of(fill(fill(tmp_path / "m"), name))
    assert len(faults) == 1
    assert faults[0].startswith(name)


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "model"
    with whole(place) as part:
        fill(part)
        (part / "model.safetensors").chmod(0o600)
        assert not place.exists()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((place / "model.safetensors").stat().st_mode) == 0o666 & ~umask
    assert [path.name for path in place.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [ModelError("no"), KeyboardInterrupt(), OSError("full")])
def test_a_folder_that_breaks_off_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    place = tmp_path / "deep" / "model"

    def write() -> None:
        with whole(place) as part:
            fill(part)
            raise error

    with pytest.raises(type(error)):
        write()
    assert list(place.parent.iterdir()) == []


def test_a_part_that_was_killed_is_never_found(models: Path) -> None:
    fill(models / "some" / ".model-1.5B.0123")
    assert kept_models() == {}
    with pytest.raises(ModelError):
        find_model("some/.model-1.5B.0123")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    place = fill(tmp_path / "m", "notes.txt")
    with pytest.raises(ModelError, match="already exists"), whole(place):
        pass
    assert (place / "notes.txt").read_text() == "{}"


def test_a_folder_that_is_not_where_the_command_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=f"there is no folder {tmp_path / 'model'}; run .*, or"):
        find_model("model")
