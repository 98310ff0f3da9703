"""Programs that check files, installed by scripts/install_tools.sh; tests skip without them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = "PETTINGLLMS_TOOLS"
"""Environment variable with the virtual environment of the tools, if it is not on PATH."""


def tool(name: str) -> str:
    """The path of a program; skips the test, with the reason, if it is not installed."""
    folder = os.environ.get(FOLDER)
    own = Path(folder) / "bin" / name if folder else None
    found = str(own) if own and own.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}; bash scripts/install_tools.sh FOLDER, then {FOLDER}=FOLDER")
    return found


def complaint(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints if it finds a fault; empty if it finds none."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr or "failed") if done.returncode else ""
