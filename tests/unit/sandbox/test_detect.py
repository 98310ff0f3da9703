"""Tiers are probed before use. Without a working tier, no program runs. Nothing is left behind."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pettingllms.errors import SandboxError, UnknownNameError
from pettingllms.sandbox import Limits, detect, open_sandbox, python, tiers
from pettingllms.sandbox.box import Box
from pettingllms.sandbox.hidden import hidden_folders
from pettingllms.sandbox.probe import probe
from pettingllms.sandbox.tiers import TIERS, Bubblewrap, Namespaces, Setup, Tier, view
from pettingllms.sandbox.warm_pool import WarmSandbox


def tier_here() -> str:
    try:
        return open_sandbox().tier.name
    except SandboxError as error:
        pytest.skip(str(error))


NO_FILTER = (
    ("listener = install_filter(logged, NEW_LISTENER)", "listener = -1"),
    ("require(install_filter(plain, 0))", "pass"),
)


class Changed(Bubblewrap):
    """bubblewrap with fewer or more options."""

    def __init__(
        self,
        *,
        less: str = "",
        more: tuple[str, ...] = (),
        script: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.less, self.more, self.script = less, more, script

    def command(self, setup: Setup) -> list[str]:
        parts = super().command(setup)
        for before, after in self.script:
            assert any(before in part for part in parts)
            parts = [part.replace(before, after) for part in parts]
        if self.less:
            at = len(parts) - 1 - parts[::-1].index(self.less)
            del parts[at : at + 2]
        at = parts.index("--remount-ro", parts.index("/work"))
        return [*parts[:at], *self.more, *parts[at:]]


class Shows(Bubblewrap):
    """bubblewrap that masks no folder."""

    def command(self, setup: Setup) -> list[str]:
        parts = super().command(setup)
        masks = tiers._masks(hidden_folders(tuple(view()[0])))
        first = next(at for at in range(len(parts)) if parts[at : at + len(masks)] == masks)
        return [*parts[:first], *parts[first + len(masks) :]]


@pytest.mark.parametrize(
    ("tier", "protection"),
    [
        (Changed(script=NO_FILTER), "shared memory, network, local sockets, system call filter"),
        (Shows(), "installed packages"),
        (Changed(less="--size"), "disk limit"),
        (Changed(more=("--proc", "/proc")), "files of the machine"),
        (Changed(less="--uid", more=("--uid", "0")), "not root"),
    ],
    ids=["filter", "packages", "disk", "files", "user"],
)
def test_a_missing_protection_is_found(tier: Tier, protection: str) -> None:
    if tier_here() != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    sandbox = WarmSandbox(tier, num_warm=0)
    try:
        with pytest.raises(SandboxError, match=protection):
            probe(sandbox)
    finally:
        sandbox.close()


def test_with_another_listener_calls_are_blocked_without_a_count() -> None:
    if tier_here() != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    unheard = Changed(script=(("install_filter(logged, NEW_LISTENER)", "-1"),))
    sandbox = WarmSandbox(unheard, num_warm=0)
    try:
        probe(sandbox)
        knock = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"
        outcome = sandbox.run(python(knock))
    finally:
        sandbox.close()
    assert (outcome.stdout, outcome.refused) == ("-1\n", {})
    assert not sandbox.is_logged


class Missing(Namespaces):
    """A tier whose program is not installed."""

    def command(self, setup: Setup) -> list[str]:
        raise SandboxError("there is no magic in /usr/bin")


class Broken(Namespaces):
    """A tier that the kernel denies."""

    def command(self, setup: Setup) -> list[str]:
        return ["/usr/bin/sh", "-c", "echo the kernel denied >&2; exit 1"]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Tier]]:
    tiers: dict[str, Tier] = {"bubblewrap": Missing(), "namespaces": Broken()}
    monkeypatch.setattr(detect, "TIERS", tiers)
    detect._opened.cache_clear()
    yield tiers
    detect._opened.cache_clear()


def test_without_a_working_tier_no_program_runs(only: dict[str, Tier]) -> None:
    with pytest.raises(SandboxError) as caught:
        open_sandbox()
    for part in ("no working sandbox found", "no magic", "the kernel denied", "user namespaces"):
        assert part in str(caught.value)


def test_other_systems_have_no_sandbox(
    only: dict[str, Tier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="requires Linux"):
        open_sandbox()


def test_the_second_tier_is_used_and_the_first_reports_its_problem(only: dict[str, Tier]) -> None:
    tier_here_now = Namespaces()
    only["namespaces"] = tier_here_now
    name, better = detect.find_tier()
    if name:
        assert open_sandbox().tier is tier_here_now
    assert "no magic" in better["bubblewrap"]


def test_a_named_tier_is_that_one_or_none(
    only: dict[str, Tier], monkeypatch: pytest.MonkeyPatch
) -> None:
    only["namespaces"] = Namespaces()
    with pytest.raises(SandboxError, match="no magic"):
        open_sandbox("bubblewrap")
    monkeypatch.setenv("PETTINGLLMS_SANDBOX", "bubblewrap")
    with pytest.raises(SandboxError, match="no magic"):
        open_sandbox()
    monkeypatch.setenv("PETTINGLLMS_SANDBOX", "none")
    with pytest.raises(UnknownNameError, match="PETTINGLLMS_SANDBOX: unknown sandbox tier 'none'"):
        open_sandbox()


def test_a_sandbox_goes_through_a_pickle() -> None:
    sandbox = open_sandbox(tier_here())
    assert pickle.loads(pickle.dumps(sandbox)) is sandbox  # noqa: S301


def test_a_closed_sandbox_raises() -> None:
    sandbox = WarmSandbox(TIERS[tier_here()])
    assert sandbox.run(python("print(1)")).ok
    sandbox.close()
    with pytest.raises(SandboxError, match="is closed"):
        sandbox.run(python("print(1)"))


def test_a_fork_starts_new_sandboxes() -> None:
    sandbox = open_sandbox(tier_here())
    assert sandbox.run(python("print(1)")).stdout == "1\n"
    child = os.fork()
    if not child:
        os._exit(0 if sandbox.run(python("print(2)")).stdout == "2\n" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sandbox.run(python("print(3)")).stdout == "3\n"


def test_a_report_without_the_nonce_is_rejected() -> None:
    box = Box(TIERS[tier_here()], 1)
    box.wait_until_ready()
    real, box._control = box._control, _Forged(box._control)
    try:
        outcome = box.run(python("import time; time.sleep(5)"), Limits(seconds=4.0))
    finally:
        real.close()
    assert (outcome.end, outcome.code) == ("killed", None)


class _Forged:
    """A control socket on which another process reports success at once."""

    def __init__(self, real: object) -> None:
        self._read, write = os.pipe()
        os.write(write, b"0" * 32 + b" 0\n")
        os.close(write)
        self._closed = False

    def fileno(self) -> int:
        return -1 if self._closed else self._read

    def sendall(self, data: bytes) -> None:
        assert len(data) == 32

    def recv(self, size: int) -> bytes:
        return os.read(self._read, size)

    def close(self) -> None:
        os.close(self._read)
        self._closed = True


LEAVER = """
import os, signal, sys, threading, time
from pettingllms.sandbox import Limits, open_sandbox, python
sandbox = open_sandbox(sys.argv[1])
sandbox.run(python("print(1)"))
hang = python("import time; time.sleep(1000)")
threading.Thread(target=sandbox.run, args=(hang, Limits(seconds=500)), daemon=True).start()
time.sleep(1.0)
print("there", flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def started_by(mark: str) -> list[str]:
    """Command lines of the processes with a marker in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "cmdline").read_bytes():
                found.append(path.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("way", ["leaves", "killed"])
@pytest.mark.parametrize("tier", TIERS)
def test_nothing_is_left_when_the_interpreter_ends(tier: str, way: str, tmp_path: Path) -> None:
    try:
        open_sandbox(tier)
    except SandboxError as error:
        pytest.skip(str(error))
    mark = f"leaver-{os.getpid()}-{tier}-{way}"
    changed = LEAVER.replace("sandbox = open", _MARKED.format(mark=mark) + "sandbox = open")
    before = set(Path("/tmp").iterdir())  # noqa: S108
    with subprocess.Popen(
        [sys.executable, "-c", changed, tier, way], stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert process.wait(60) == (-signal.SIGKILL if way == "killed" else 0)
    deadline = time.monotonic() + 10
    while (left := started_by(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list(tmp_path.iterdir()) == []
    fresh = {path for path in Path("/tmp").iterdir() if "sandbox" in path.name}  # noqa: S108
    assert fresh <= before


_MARKED = """
from pettingllms.sandbox import tiers
real = tiers._source
tiers._source = lambda name: real(name) + "\\n# {mark}\\n"
"""


def test_the_mark_by_which_leftovers_are_found_is_seen() -> None:
    mark = f"control-{os.getpid()}"
    with subprocess.Popen(["/usr/bin/sh", "-c", f"sleep 30; : {mark}"]) as process:
        assert str(process.pid) in started_by(mark)
        process.kill()
