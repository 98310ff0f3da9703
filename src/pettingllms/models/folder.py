"""Model folders: where they are, checks of their content, and atomic writing."""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from pettingllms.errors import ModelError
from pettingllms.models.revision import check_revision, split_revision
from pettingllms.policies.files import Content
from pettingllms.policies.tensor_shards import Shards, parts_of, whole_shape
from pettingllms.vision.families import object_in

ACCEPTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""Files that contain only data. Pickles run code when they are loaded, so they are rejected."""
LEFT_OUT = ("*/*", "consolidated*")
"""Files of a hub repository with duplicate weights, or for other programs."""
_INDEX = "model.safetensors.index.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def models_folder() -> Path:
    """Where models are kept by name: $PETTINGLLMS_MODELS, or a folder in the user's cache."""
    return Path(os.environ.get("PETTINGLLMS_MODELS") or "~/.cache/pettingllms/models").expanduser()


def find_model(name: str) -> Path:
    """The folder of a model given by its path, its name, or `NAME@REVISION`; never touches the
    network."""
    given = Path(name).expanduser()
    if is_model(given):
        return given.resolve()
    name, revision = split_revision(name)
    if given.is_dir() or not _NAME.fullmatch(name):
        raise ModelError(
            f"'{name}' is not a model: expected a folder with a config.json, or a name such as "
            "'HuggingFaceTB/SmolLM2-135M-Instruct'; pass the folder that has the config.json"
        )
    kept = models_folder() / name
    if is_model(kept):
        check_revision(name, kept, revision)
        return kept.resolve()
    cached = _cached_by_hub(name, revision)
    if cached is not None:
        return cached
    pinned = f"{name}@{revision}" if revision else name
    make = f"tiny {kept}" if name.startswith("tiny") else f"get {pinned}"
    raise ModelError(
        f"model '{name}' not found: neither in {models_folder()} nor in the Hugging Face cache, "
        f"and there is no folder {Path(name).absolute()}; run `pettingllms models {make}`, or pass "
        "the path of its folder, relative to the current directory"
    )


def is_model(folder: Path) -> bool:
    """Whether a folder has a model. Folders are written atomically, so one file is enough."""
    return (folder / "config.json").is_file()


def kept_models() -> dict[str, Path]:
    """The models in the models folder, by name."""
    top = models_folder()
    folders = [
        config.parent for depth in ("*", "*/*") for config in top.glob(f"{depth}/config.json")
    ]
    names = {folder.relative_to(top).as_posix(): folder for folder in folders}
    return {name: names[name] for name in sorted(names) if _NAME.fullmatch(name)}


def place_for(name: str) -> Path:
    """The folder that a model of that name is kept in."""
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"'{name}' is not a model name; expected one such as "
            "'HuggingFaceTB/SmolLM2-135M-Instruct'"
        )
    return models_folder() / name


def faults_of(folder: Path) -> list[str]:
    """Why a folder is not a complete model that is safe to load."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    faults = [
        f"{path.relative_to(folder)} is not an accepted type of file ({', '.join(ACCEPTED)})"
        for path in files
        if not any(path.match(pattern) for pattern in ACCEPTED)
    ]
    return [*faults, *missing_in(folder)]


def missing_in(folder: Path) -> list[str]:
    """Files that a model's folder lacks."""
    faults = [f"{name} is missing" for name in _needed(folder) if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        faults.append(f"a tokenizer is missing (one of {', '.join(_TOKENIZERS)})")
    return faults


def has_template(folder: Path) -> bool:
    """Whether a model has a chat template."""
    if (folder / "chat_template.jinja").is_file():
        return True
    config = folder / "tokenizer_config.json"
    return config.is_file() and bool(object_in(config).get("chat_template"))


def num_parameters(folder: Path) -> int:
    """Number of parameters of a model, from the headers of its weight files."""
    return sum(math.prod(shape) for shape in tensor_shapes(folder).values())


def tensor_shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of each tensor of a model, from the headers of its weight files."""
    files = sorted(folder.glob("*.safetensors"))
    return {name: shape for file in files for name, shape in _shapes(file).items()}


def shapes_in(content: Content, file: str) -> dict[str, list[int]]:
    """The tensor shapes in the content of a safetensors file; its header is enough."""
    if isinstance(content, Shards):
        return {name: list(whole_shape(parts[0])) for name, parts in parts_of(content).items()}
    if isinstance(content, Path):
        return _shapes(content)
    end = 8 + int.from_bytes(content[:8], "little")
    try:
        head = json.loads(content[8:end])
        return {name: tensor["shape"] for name, tensor in head.items() if name != "__metadata__"}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ModelError(
            f"{file} is not a complete safetensors file; fetch the model again"
        ) from None


def _shapes(file: Path) -> dict[str, list[int]]:
    with file.open("rb") as opened:
        length = opened.read(8)
        # A corrupt header may claim to be longer than the file; do not allocate that much.
        rest = min(int.from_bytes(length, "little"), file.stat().st_size)
        return shapes_in(length + opened.read(rest), str(file))


def check_free(folder: Path) -> None:
    """Reject a folder that is not empty: nothing is overwritten."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} already exists; remove it, or pass another folder")


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill, which is renamed to `folder` only if nothing failed."""
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.parent / f".{folder.name}.{uuid4().hex}"
    part.mkdir()
    try:
        yield part
        # Weights are saved as readable only by their owner; a shared cache must be readable.
        mode = part.stat().st_mode & 0o666
        for path in part.rglob("*"):
            if path.is_file():
                path.chmod(mode)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def save_quietly(model: Any, folder: Path) -> None:
    """Save a Transformers model without a progress bar."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _needed(folder: Path) -> list[str]:
    index = folder / _INDEX
    if not index.is_file():
        return ["config.json", "model.safetensors"]
    weights = object_in(index).get("weight_map")
    if not isinstance(weights, dict):
        raise ModelError(f"{index} lists no weight files; fetch the model again")
    return ["config.json", *sorted({*map(str, weights.values())})]


def _cached_by_hub(name: str, revision: str | None) -> Path | None:
    """A complete snapshot in the Hugging Face cache, if any."""
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import snapshot_download

    try:
        found = Path(
            snapshot_download(
                name,
                revision=revision,
                local_files_only=True,
                allow_patterns=list(ACCEPTED),
                ignore_patterns=list(LEFT_OUT),
            )
        )
        missing = [file for file in _needed(found) if not (found / file).is_file()]
    except (OSError, ValueError, KeyError):
        return None
    return None if missing else found
