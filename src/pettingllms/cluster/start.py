"""Starting Ray: with token authentication always, and on loopback unless it joins a cluster.

Ray makes the folders of its sockets writable for every user of the machine, who could then put a
socket of their own in place of the raylet's. So its folders are inside one that only this user can
enter, and they are closed again once Ray runs.

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
MAX_TOP = 107 - len("/pl-12345678/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")
"""Longest folder in which Ray's sockets still have paths that a socket can have."""
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
    if config.address:
        with _shut_down():
            _start(config.address)
            yield
    else:
        with _ray_folder() as folder, _shut_down():
            _start("", folder)
            with _logs_kept(folder):
                yield


@contextmanager
def _shut_down() -> Iterator[None]:
    import ray

    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _ray_folder() -> Iterator[Path]:
    """A folder that only this user can enter, for the sockets, logs and spilled objects of one
    cluster. A too long RAY_TMPDIR is left to Ray to refuse."""
    top = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    if "RAY_TMPDIR" not in os.environ and len(str(top)) > MAX_TOP:
        top = Path("/tmp")  # noqa: S108 - the folder in it has a name that nobody knows beforehand
    top.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pl-", dir=top))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _logs_kept(folder: Path) -> Iterator[None]:
    """Keep Ray's logs if the cluster fails: they tell why an engine died."""
    try:
        yield
    except ClusterError as error:
        kept = Path(tempfile.mkdtemp(prefix="pettingllms-ray-logs-", dir=folder.parent))
        logs = folder / "session_latest" / "logs"
        shutil.copytree(logs, kept, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        raise ClusterError(f"{error}\nRay's logs are in {kept}") from error


def _start(address: str, folder: Path | None = None) -> None:
    """Join the cluster at an address, or start one in a folder; Ray has no class of its own for a
    failure."""
    import ray

    own: dict[str, Any] = {
        "_temp_dir": str(folder),
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
    if folder is not None:
        _close(folder)


def _close(folder: Path) -> None:
    """Take from others the right to write that Ray gave them."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


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
