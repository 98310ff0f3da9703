"""Ray that does not come up is a sentence, not a page of somebody else's calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

STARTS = """
from pettingllms.cluster.start import ray_running
from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError

try:
    with ray_running(ClusterConfig()):
        print("it runs")
except ClusterError as error:
    print(error)
"""


def test_ray_that_does_not_start_says_why_and_what_to_do(tmp_path: Path) -> None:
    """In a folder whose path is too long for its sockets."""
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        env={**os.environ, "RAY_TMPDIR": str(tmp_path / ("long" * 30))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Ray did not start (")
    assert "AF_UNIX" in done.stdout
    assert done.stdout.endswith(
        "is this machine overloaded, or the disk of RAY_TMPDIR full? Try again\n"
    )
