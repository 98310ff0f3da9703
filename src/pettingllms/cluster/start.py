"""Starting Ray: with token authentication always, and on loopback unless it joins a cluster.

Ray reads its environment when it is imported, so nothing here imports it at the top, and whoever
uses other parts of this package imports them inside `ray_running`.
"""

import atexit
import functools
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.config import ClusterConfig
from pettingllms.errors import ClusterError, describe

ARITHMETIC = {
    "OMP_WAIT_POLICY": "passive",
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
}
"""CPU: threads that wait do not spin, and memory of large tensors is kept for the next ones."""
INSTALL = "pip install 'pettingllms[cpu]', or [gpu]"
OBJECT_STORE_BYTES = 2 * 2**30
REMOTE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""On Linux Ray listens on all interfaces, whatever address it is given, unless this is 0."""


@contextmanager
def ray_running(config: ClusterConfig) -> Iterator[None]:
    """Ray for one run: the cluster of the configuration, or one of the run's own."""
    if find_spec("ray") is None:
        raise ClusterError(f"engines and learners run on Ray, which is not installed; {INSTALL}")
    _prepare(config)
    import ray

    if ray.is_initialized():
        raise ClusterError("Ray is running in this process already; call ray.shutdown() first")
    try:
        _start(config.address)
        yield
    finally:
        ray.shutdown()


def _start(address: str) -> None:
    """Join the cluster at an address, or start one; Ray has no class of its own for a failure."""
    import ray

    own: dict[str, Any] = {
        "include_dashboard": False,
        "logging_level": logging.ERROR,
        "object_store_memory": OBJECT_STORE_BYTES,
    }
    try:
        ray.init(address=address or "local", log_to_driver=False, **({} if address else own))
    except Exception as error:
        advice = (
            f"does `ray status --address {address}` find it, and is this its token?"
            if address
            else "is this machine overloaded, or the disk of RAY_TMPDIR full? Try again"
        )
        raise ClusterError(f"Ray did not start ({describe(error)}); {advice}") from error


def _prepare(config: ClusterConfig) -> None:
    """Set what Ray reads when it is imported."""
    wanted = {"RAY_AUTH_MODE": "token", REMOTE: "1" if config.address else "0"}
    if "ray" in sys.modules and any(os.environ.get(k) != v for k, v in wanted.items()):
        raise ClusterError(
            "ray was imported before the run could set token authentication and loopback; start "
            "the run in a process of its own, or set "
            + " ".join(f"{key}={value}" for key, value in wanted.items())
        )
    os.environ.update(wanted)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else engines yield to everything else
    for name, value in ARITHMETIC.items():  # read when a process starts, so by all that Ray starts
        os.environ.setdefault(name, value)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not config.address:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_folder() / "token")
        os.environ.setdefault("RAY_TMPDIR", tempfile.gettempdir())  # its sockets want short paths
        os.environ["TMPDIR"] = str(_folder())


@functools.cache
def _folder() -> Path:
    """What this process and all that it starts write for the moment, gone when it ends, however
    engines ended. With a token of its own: Ray's file is readable by every user of the machine."""
    folder = Path(tempfile.mkdtemp(prefix="pettingllms-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="utf-8")
    return folder


def find_device(config: ClusterConfig) -> tuple[str, float]:
    """What models run on, and how many of it there are."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    num_gpus = resources.get("GPU", 0)
    if config.device == "gpu" and not num_gpus:
        raise ClusterError(
            "cluster.device is 'gpu' and Ray finds none; is the driver installed, and are devices "
            "hidden by CUDA_VISIBLE_DEVICES?"
        )
    return ("cpu", 0) if config.device == "cpu" or not num_gpus else ("cuda", num_gpus)
