"""What identifies a model's folder on another machine, without reading its weights."""

import hashlib
from pathlib import Path

MAX_HEADER = 2**27


def fingerprint(folder: Path) -> dict[str, str]:
    """The size of each weight file with a hash of its header, and a hash of each other file that
    changes what the model computes or reads."""
    if not folder.is_dir():
        return {}
    small = [*folder.glob("*.json"), *folder.glob("*.jinja"), *folder.glob("*.model")]
    found = {file.name: _hash(file.read_bytes()) for file in small}
    for file in folder.glob("*.safetensors"):
        found[file.name] = f"{file.stat().st_size} bytes, header {_hash(_header(file))}"
    return found


def _header(file: Path) -> bytes:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        return opened.read(min(length, MAX_HEADER))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
