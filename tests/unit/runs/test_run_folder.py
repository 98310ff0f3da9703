"""Two processes never write to one run."""

import subprocess
import sys
from pathlib import Path

import pytest

from pettingllms.errors import CheckpointError, ConfigError
from pettingllms.runs.folder import RunFolder

HOLD = """
import sys
from pathlib import Path
from pettingllms.runs.folder import RunFolder

with RunFolder(Path(sys.argv[1])).taken():
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_a_run_that_another_process_trains_is_refused_until_that_one_ends(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "taken\n"
        with (
            pytest.raises(ConfigError, match="another process is training"),
            folder.taken(),
        ):
            pytest.fail("two processes have it")
        other.kill()
    with folder.taken():
        assert list(tmp_path.iterdir()) == []


def test_an_error_inside_is_not_taken_for_another_process(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), RunFolder(tmp_path).taken():
        raise BlockingIOError


def test_a_folder_that_is_not_there_is_not_one_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no folder .*mistyped; give a run folder"):
        RunFolder(tmp_path / "mistyped").weights(["p"])
