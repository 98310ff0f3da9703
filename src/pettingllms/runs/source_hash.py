"""A hash of the installed source of this package, to compare machines."""

import hashlib
from pathlib import Path


def source_hash() -> str:
    """The hash of all Python files of this package, with their paths in it."""
    top = Path(__file__).parents[1]
    total = hashlib.sha256()
    for file in sorted(top.rglob("*.py")):
        total.update(f"{file.relative_to(top)}\0".encode())
        total.update(file.read_bytes())
    return total.hexdigest()


def file_hash(file: Path) -> str:
    """The hash of a file; empty if it is missing."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
