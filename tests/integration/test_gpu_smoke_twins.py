"""The CPU twins of scripts/gpu_smoke.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from running import environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_smoke.py"


def test_the_cpu_twins_pass_and_are_reported(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT), "--cpu", "--out", str(tmp_path / "report.md")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    print(found.stdout[-4000:], found.stderr[-2000:])
    assert found.returncode == 0
    report = (tmp_path / "report.md").read_text()
    assert report.count("| ok |") == 8
    assert "| adamw_8bit | skipped |" in report
    assert "canary" in report
    assert str(Path.home()) not in report
