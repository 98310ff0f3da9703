"""No other user of the machine can reach the sockets of a run's own cluster."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

LOOKS = """
import json, os, stat, sys
from pathlib import Path
from pettingllms.cluster.start import ray_running
from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError

def seen(path):
    found = path.stat()
    return [str(path), stat.S_IMODE(found.st_mode), found.st_uid]

try:
    with ray_running(ClusterConfig()):
        import ray
        from ray._private.worker import _global_node as node
        assert ray.get(ray.remote(lambda: 7).remote()) == 7
        sockets = [Path(node.raylet_socket_name), Path(node.plasma_store_socket_name)]
        assert all(stat.S_ISSOCK(path.stat().st_mode) for path in sockets), sockets
        assert all(len(str(path)) <= 107 for path in sockets)
        ways = [[seen(path) for path in one.parents] for one in sockets]
        print(json.dumps({"ways": ways, "top": node.get_temp_dir_path()}))
        if "fails" in sys.argv:
            raise ClusterError("an engine died")
except ClusterError as error:
    print(json.dumps({"said": str(error)}))
"""


def look(*words: str, **env: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", LOOKS, *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def check_ways(ways: list[Any], top: str) -> None:
    """Every folder from the private one to the sockets is this user's alone, and no other user can
    replace the private one."""
    for way in ways:
        inside = [seen for seen in way if seen[0].startswith(top)]
        assert len(inside) >= 3, way
        assert all(mode & 0o077 == 0 and uid == os.getuid() for _, mode, uid in inside), inside
        for path, mode, _ in way[len(inside) :]:
            assert not mode & stat.S_IWOTH or mode & stat.S_ISVTX, path


def test_the_sockets_of_a_cluster_are_its_users_alone_and_gone_afterwards() -> None:
    found, failed = look("fails")
    check_ways(found["ways"], found["top"])
    assert not Path(found["top"]).exists()
    logs = Path(failed["said"].rpartition(" ")[2])
    assert failed["said"].startswith("an engine died\nRay's logs are in ")
    assert list(logs.glob("*raylet*"))
    assert stat.S_IMODE(logs.stat().st_mode) == 0o700
    shutil.rmtree(logs)


def test_a_folder_with_a_long_path_is_passed_over_for_a_short_one(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 15)
    long.mkdir()
    (found,) = look(TMPDIR=str(long))
    check_ways(found["ways"], found["top"])


def test_a_folder_of_the_users_choice_holds_a_private_one() -> None:
    with tempfile.TemporaryDirectory(prefix="r-") as chosen:
        Path(chosen).chmod(0o777 | stat.S_ISVTX)
        (found,) = look(RAY_TMPDIR=chosen)
        assert found["top"].startswith(chosen)
        check_ways(found["ways"], found["top"])
        assert list(Path(chosen).iterdir()) == []
