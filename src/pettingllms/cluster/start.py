"""Starting Ray: always with token authentication, and on loopback unless it joins a cluster.

Ray makes its socket folders writable for all users of the machine, who could then replace the
raylet's socket. So its folders are inside one that only this user can enter, and their permissions
are restricted once Ray runs.

Ray reads its environment when it is imported. So this module imports it lazily, and callers import
other parts of this package inside `ray_running`.
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
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""CPU settings: waiting threads do not spin, and memory of large tensors is reused and in large
pages."""
INSTALL = "pip install 'pettingllms[cpu]', or [gpu]"
OBJECT_STORE_BYTES = 2 * 2**30
MAX_TOP = 107 - len("/pl-12345678/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")
"""Longest folder path with which Ray's socket paths stay within the limit."""
REMOTE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Unless this is 0, Ray on Linux listens on all interfaces, whatever its address."""


_shared: list[ClusterConfig] = []
"""What the stages of the program that runs now share Ray for; empty outside `shared_ray`."""


@contextmanager
def shared_ray(config: ClusterConfig) -> Iterator[None]:
    """Ray for several runs of this process, one after another, which saves starting it for each."""
    with ray_running(config):
        _shared.append(config)
        try:
            yield
        finally:
            _shared.pop()


@contextmanager
def ray_running(config: ClusterConfig) -> Iterator[None]:
    """Ray for one run: that of `shared_ray`, the configured cluster, or a local one."""
    if config in _shared:
        yield
        return
    if find_spec("ray") is None:
        raise ClusterError(f"engines and learners run on Ray, which is not installed; {INSTALL}")
    _prepare(config)
    import ray

    if ray.is_initialized():
        raise ClusterError("Ray is already running in this process; call ray.shutdown() first")
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
    """A folder that only this user can enter, for the sockets, logs and spilled objects of a
    cluster. Ray itself rejects a RAY_TMPDIR that is too long."""
    top = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    if "RAY_TMPDIR" not in os.environ and len(str(top)) > MAX_TOP:
        top = Path("/tmp")  # noqa: S108 - the folder in it has a random name
    top.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="pl-", dir=top))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _logs_kept(folder: Path) -> Iterator[None]:
    """Keep Ray's logs if the cluster fails; they show why an engine died."""
    try:
        yield
    except ClusterError as error:
        kept = Path(tempfile.mkdtemp(prefix="pettingllms-ray-logs-", dir=folder.parent))
        logs = folder / "session_latest" / "logs"
        shutil.copytree(logs, kept, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        raise ClusterError(f"{error}\nRay's logs are in {kept}") from error


def _start(address: str, folder: Path | None = None) -> None:
    """Join the cluster at an address, or start one in a folder. Ray raises various exceptions."""
    import ray

    own: dict[str, Any] = {
        "_temp_dir": str(folder),
        "include_dashboard": False,
        "logging_level": logging.ERROR,
        "object_store_memory": OBJECT_STORE_BYTES,
    }
    # Processes of other nodes do not inherit this one's environment.
    joined: dict[str, Any] = {"runtime_env": {"env_vars": {n: os.environ[n] for n in ARITHMETIC}}}
    try:
        ray.init(address=address or "local", log_to_driver=False, **(joined if address else own))
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
    """Remove the write permissions that Ray gave to other users."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def _prepare(config: ClusterConfig) -> None:
    """Set the environment variables that Ray reads when it is imported."""
    wanted = {"RAY_AUTH_MODE": "token", REMOTE: "1" if config.address else "0"}
    if "ray" in sys.modules and any(os.environ.get(k) != v for k, v in wanted.items()):
        raise ClusterError(
            "ray was imported before the run could set token authentication and loopback; start "
            "the run in a separate process, or set "
            + " ".join(f"{key}={value}" for key, value in wanted.items())
        )
    os.environ.update(wanted)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_worker_niceness", "0"
    )  # otherwise engines yield to all other processes
    for name, value in ARITHMETIC.items():  # read by all processes that Ray starts
        os.environ.setdefault(name, value)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not config.address:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_folder() / "token")
        os.environ["TMPDIR"] = str(_folder())


@functools.cache
def _folder() -> Path:
    """Temporary files of this process and its children, deleted when it exits. It has its own
    token file, because Ray's is readable by all users of the machine."""
    folder = Path(tempfile.mkdtemp(prefix="pettingllms-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="utf-8")
    return folder


def find_device(config: ClusterConfig) -> tuple[str, float]:
    """The device of models, and the number of GPUs."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    num_gpus = resources.get("GPU", 0)
    if config.device == "gpu" and not num_gpus:
        raise ClusterError(
            "cluster.device is 'gpu', but Ray finds no GPU; check the driver and "
            "CUDA_VISIBLE_DEVICES"
        )
    return ("cpu", 0) if config.device == "cpu" or not num_gpus else ("cuda", num_gpus)
