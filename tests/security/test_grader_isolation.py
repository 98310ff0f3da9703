"""Code execution through the math parser cannot leave the sandbox of the grader.

The worker is the real one with a different parser, which executes the attempt named by the
answer. Each attempt fails in the sandbox and succeeds without it, which shows that it works.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("math_verify", reason="needs the extra `math`")

from pettingllms.errors import GraderError
from pettingllms.grading import Grader, grader

ATTEMPTS = """
import ctypes, os, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

def thread():
    made = threading.Thread(target=int)
    made.start()
    made.join()
    return True

def connected(path):
    socket.socket(socket.AF_UNIX).connect(path)
    return True

def bound(family):
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
    return True

def looked_at():
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError:
        return True

DONE = {
    "read a file": lambda path: open(path).read() == "secret",
    "read a file of the package": lambda _: os.path.exists(PACKAGE),
    "read the interpreter": lambda _: os.path.exists(sys.executable),
    "list the root": lambda _: bool(os.listdir("/usr")),
    "make a file": lambda path: os.open(path + ".made", os.O_CREAT | os.O_WRONLY) >= 0,
    "see its process in /proc": lambda _: os.path.exists("/proc/self/environ"),
    "read its environment": lambda _: bool(os.environ),
    "fork": lambda _: fork(),
    "start a thread": lambda _: thread(),
    "start a program": lambda _: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1] == 0,
    "become a program": lambda _: looked_at(),
    "listen on the network": lambda _: bound(socket.AF_INET),
    "listen on the new network": lambda _: bound(socket.AF_INET6),
    "make a local socket": lambda _: bool(socket.socket(socket.AF_UNIX)),
    "connect to a local socket": lambda path: connected(path + ".socket"),
    "make a raw socket": lambda _: bool(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
    "signal the process that asked": lambda _: not os.kill(ASKER, 0),
    "trace": lambda _: libc.ptrace(0, 0, 0, 0) == 0,
    "be somebody": lambda _: os.getuid() != 65534,
    "gain privileges": lambda _: libc.prctl(39, 0, 0, 0, 0) != 1,
    "make a namespace": lambda _: libc.unshare(0x10000000) == 0,
    "look at queues in memory": lambda _: libc.msgget(7, 0) >= 0 or ctypes.get_errno() == 2,
}

class Reader:
    def same(self, answer, truth):
        try:
            return bool(DONE[answer](truth))
        except (OSError, RuntimeError):
            return False
"""
NAMES = [line.split('"')[1] for line in ATTEMPTS.splitlines() if line.startswith('    "')]


def boot(package: Path) -> str:
    """The worker's boot code, with the parser replaced."""
    whole = f"PACKAGE, ASKER = {str(package)!r}, {os.getpid()}\n{ATTEMPTS}"
    return (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        f"space = {{}}\nexec({whole!r}, space)\n"
        "from pettingllms.grading import reading, worker\n"
        "reading.MathVerify = space['Reader']\n"
        "worker.serve(float(sys.argv[2]), int(sys.argv[3]), confined=sys.argv[4] == 'True')"
    )


@pytest.fixture
def secret() -> Iterator[Path]:
    """A world-readable file and a socket, so that only the sandbox can hide them."""
    with TemporaryDirectory() as folder, closing(socket.socket(socket.AF_UNIX)) as server:
        Path(folder).chmod(0o755)
        path = Path(folder) / "secret"
        path.write_text("secret")
        server.bind(f"{path}.socket")
        server.listen()
        yield path


def outcomes(secret: Path, monkeypatch: pytest.MonkeyPatch, confined: str) -> dict[str, bool]:
    monkeypatch.setenv(grader.VARIABLE, confined)
    monkeypatch.setattr(grader, "BOOT", boot(Path(grader.__file__)))
    asked = Grader(1, seconds=20)
    with closing(asked):
        verdicts = {name: asked.grade(name, str(secret)) for name in NAMES}
    assert not {name: found.failure for name, found in verdicts.items() if found.failure}
    return {name: found.right for name, found in verdicts.items()}


def test_attempts_of_a_parser_fail_in_the_sandbox(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(NAMES) >= 20
    found = outcomes(secret, monkeypatch, "")
    assert found == dict.fromkeys(NAMES, False)
    assert not Path(f"{secret}.made").exists()


def test_attempts_succeed_without_the_sandbox(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = outcomes(secret, monkeypatch, grader.UNCONFINED)
    assert found == dict.fromkeys(NAMES, True)


def test_a_module_that_was_not_loaded_is_named_and_not_silently_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = boot(Path(grader.__file__)).replace("DONE[answer](truth)", "__import__(answer)")
    monkeypatch.setattr(grader, "BOOT", late)
    with closing(Grader(1)) as asked:
        refusal = asked.grade("mailbox", "1").refusal
        assert refusal is not None
        assert "mailbox, which was not loaded" in refusal
        assert asked.grade("json", "1").right


def test_a_missing_sandbox_raises_unless_the_grader_is_unconfined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grader, "missing_isolation", lambda: "the kernel denied Landlock")
    with pytest.raises(GraderError, match="denied Landlock.*PETTINGLLMS_GRADER=unconfined"):
        Grader(1)
    monkeypatch.setenv(grader.VARIABLE, grader.UNCONFINED)
    Grader(1).close()
    monkeypatch.setenv(grader.VARIABLE, "off")
    with pytest.raises(GraderError, match="'off'"):
        Grader(1)


def test_the_message_names_what_the_kernel_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = "import threading as t; t.Thread(target=t.Event().wait, daemon=True).start(); "
    monkeypatch.setattr(grader, "TRY", waits + grader.TRY)  # threads may not leave a namespace
    grader.missing_isolation.cache_clear()
    assert "denied new namespaces" in grader.missing_isolation()
    grader.missing_isolation.cache_clear()
