"""If Ray does not start, the error is one sentence and not a page of Ray's stack trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

from pettingllms.cluster import start
from pettingllms.config import ClusterConfig

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


def test_runs_share_ray_only_inside_shared_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(start, "_prepare", lambda _: None)
    monkeypatch.setattr(start, "_start", lambda *_: log.append("start"))
    monkeypatch.setattr("ray.shutdown", lambda: log.append("stop"))
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # whatever other tests left running
    config = ClusterConfig()

    def two_runs() -> None:
        for _ in range(2):
            with start.ray_running(config):
                log.append("run")

    with start.shared_ray(config):
        two_runs()
    assert log == ["start", "run", "run", "stop"]
    log.clear()
    two_runs()
    assert log == ["start", "run", "stop"] * 2
    log.clear()
    with pytest.raises(ValueError, match="wrong"), start.shared_ray(config):
        raise ValueError("wrong")
    two_runs()
    assert log == ["start", "stop"] + ["start", "run", "stop"] * 2
