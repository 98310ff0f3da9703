"""Control groups are found, configured in the format of each version, and removed.

Version 1 and the search run on this machine, if it has cgroups; version 2 runs on an imitation of
the kernel's folders.
"""

import os
import subprocess
from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, python
from pettingllms.sandbox.cgroup import (
    PREFIX,
    VERSIONS,
    Group,
    Place,
    find_place,
    place_for,
    remove_leftovers,
)
from pettingllms.sandbox.tiers import TIERS
from pettingllms.sandbox.warm_pool import WarmSandbox


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that creates the kernel's files in new subfolders."""
    made = Path.mkdir

    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)  # type: ignore[arg-type]
        if self.name.startswith(PREFIX):
            (self / "cgroup.procs").touch()
            for files in VERSIONS.values():
                for name in (files.limit, files.swap):
                    (self / name).touch()
                (self / files.usage).write_text("1000\n")
                (self / files.kills).write_text("oom 0\noom_kill 0\n")

    def rmdir(self: Path) -> None:
        for file in self.iterdir():
            file.unlink()
        os.rmdir(self)  # noqa: PTH106 - the real one, below the replaced one

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    return tmp_path


def place_in(kernel: Path, groups: str, mounts: str) -> Place | None:
    (kernel / "groups").write_text(groups)
    (kernel / "mounts").write_text(mounts)
    return place_for(kernel / "groups", kernel / "mounts")


def mount_of(kind: str, top: Path, root: str, options: str) -> str:
    return f"30 20 0:26 {root} {top} rw,nosuid - {kind} {kind} {options}\n"


def test_version_2_uses_the_nearest_group_that_shares_out_memory(kernel: Path) -> None:
    own = kernel / "top/user.slice/app.slice/run.scope"
    own.mkdir(parents=True)
    for folder, shares in (
        (own, ""),
        (own.parent, "memory pids\n"),
        (own.parents[1], "memory pids\n"),
    ):
        (folder / "cgroup.subtree_control").write_text(shares)
    mounts = mount_of("cgroup2", kernel / "top", "/", "rw")
    place = place_in(kernel, "0::/user.slice/app.slice/run.scope\n", mounts)
    assert place == Place(2, own.parent)
    assert not list(own.parent.glob(f"{PREFIX}*")), "the trial is gone"


def test_version_2_without_the_memory_controller_leaves_it_to_version_1(kernel: Path) -> None:
    for name in ("unified", "memory/mine"):
        (kernel / name).mkdir(parents=True)
    (kernel / "unified/cgroup.subtree_control").write_text("pids\n")
    mounts = mount_of("cgroup2", kernel / "unified", "/", "rw")
    mounts += mount_of("cgroup", kernel / "cpu", "/", "rw,cpu")
    mounts += mount_of("cgroup", kernel / "memory", "/", "rw,memory")
    place = place_in(kernel, "4:memory:/mine\n1:cpu:/\n0::/\n", mounts)
    assert place == Place(1, kernel / "memory/mine")


def test_a_mount_that_shows_a_part_is_read_as_such(kernel: Path) -> None:
    (kernel / "memory/inner").mkdir(parents=True)
    mounts = mount_of("cgroup", kernel / "memory", "/docker/abc", "rw,memory")
    assert place_in(kernel, "4:memory:/docker/abc/inner\n", mounts) == Place(
        1, kernel / "memory/inner"
    )
    assert place_in(kernel, "4:memory:/elsewhere\n", mounts) is None
    assert place_in(kernel, "", "") is None


@pytest.mark.parametrize(
    ("version", "written"),
    [
        (2, {"memory.max": "1500", "memory.swap.max": "0", "memory.oom.group": "1"}),
        (1, {"memory.limit_in_bytes": "1500", "memory.memsw.limit_in_bytes": "1500"}),
    ],
)
def test_a_group_is_limited_from_what_is_in_use(
    kernel: Path, version: int, written: dict[str, str]
) -> None:
    group = Group(Place(version, kernel))
    (folder,) = kernel.glob(f"{PREFIX}*")
    group.limit(500)
    assert {name: (folder / name).read_text() for name in written} == written
    assert not group.is_over()
    (folder / VERSIONS[version].kills).write_text("oom 3\noom_kill 1\n")
    assert group.is_over()
    group.close()
    assert not folder.exists()


def test_groups_of_dead_processes_are_removed(kernel: Path) -> None:
    ended = subprocess.Popen(["/usr/bin/true"])
    ended.wait()
    for name in (f"{PREFIX}{ended.pid}-0-aa", f"{PREFIX}{os.getpid()}-0-bb"):
        (kernel / name).mkdir()
    remove_leftovers(Place(2, kernel))
    assert [path.name for path in kernel.iterdir()] == [f"{PREFIX}{os.getpid()}-0-bb"]


@pytest.mark.parametrize("tier", TIERS)
def test_the_kernel_enforces_the_limit_and_the_group_is_removed(tier: str) -> None:
    place = find_place()
    if place is None:
        pytest.skip("this machine lets us make no control groups")
    before = set(place.folder.glob(f"{PREFIX}{os.getpid()}-*"))  # of sandboxes of other tests
    sandbox = WarmSandbox(TIERS[tier], num_warm=0)
    try:
        assert sandbox.cgroup_version == place.version
        greedy = "import os\nif not os.fork():\n  x = bytearray(b'x') * (100 << 20)\nos.wait()"
        assert sandbox.run(python(greedy), Limits(memory_mb=64)).end == "memory"
        assert sandbox.run(python("print(1)"), Limits(memory_mb=64)).ok
        full = "open('f', 'wb').write(bytes(16 << 20)); x = bytearray(b'x') * (40 << 20); print(1)"
        assert sandbox.run(python(full), Limits(memory_mb=64, disk_mb=16)).ok, "the disk is apart"
    finally:
        sandbox.close()
    assert set(place.folder.glob(f"{PREFIX}{os.getpid()}-*")) <= before
