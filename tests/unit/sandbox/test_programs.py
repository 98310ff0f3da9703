"""Input, output and limits of sandboxed programs, on each tier that works on this machine."""

import threading
import time

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Limits, Outcome, Program, Sandbox, open_sandbox, python
from pettingllms.sandbox.tiers import TIERS


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return open_sandbox(request.param)
    except SandboxError as error:
        pytest.skip(str(error))


LIMITS = Limits(seconds=20.0)


def said(outcome: Outcome) -> str:
    assert (outcome.end, outcome.code, outcome.stderr) == ("exited", 0, "")
    return outcome.stdout


def test_a_program_reads_and_writes(sandbox: Sandbox) -> None:
    source = "import sys\nprint(input()[::-1], sys.stdin.read())"
    assert said(sandbox.run(python(source, "abc\nrest"), LIMITS)) == "cba rest\n"


def test_it_has_its_files_and_can_import_them(sandbox: Sandbox) -> None:
    files = {"answers.py": b"best = 42", "data/words.txt": "größer".encode()}
    source = "import answers\nprint(answers.best, open('data/words.txt').read())"
    assert said(sandbox.run(python(source, files=files), LIMITS)) == "42 größer\n"


def test_large_files_and_input_come_through(sandbox: Sandbox) -> None:
    big = bytes(range(256)) * 12_000
    source = "import sys; print(len(open('big', 'rb').read()), len(sys.stdin.buffer.read()))"
    program = Program(("python", "main.py"), {"main.py": source.encode(), "big": big}, big)
    assert said(sandbox.run(program, Limits(seconds=20, disk_mb=1))) == f"{len(big)} {len(big)}\n"


def test_unread_input_does_not_block(sandbox: Sandbox) -> None:
    outcome = sandbox.run(python("print(1)", "x" * 4_000_000), LIMITS)
    assert said(outcome) == "1\n"


@pytest.mark.parametrize(
    ("source", "code", "stderr"),
    [
        ("exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no good')", 1, "no good\n"),
        ("import os; os._exit(200)", 200, ""),
    ],
)
def test_exit_codes_are_those_of_python(
    sandbox: Sandbox, source: str, code: int, stderr: str
) -> None:
    outcome = sandbox.run(python(source), LIMITS)
    assert (outcome.end, outcome.code, outcome.stderr) == ("exited", code, stderr)


def test_a_traceback_shows_the_program_and_nothing_of_ours(sandbox: Sandbox) -> None:
    outcome = sandbox.run(python("def f():\n    return 1 / 0\n\nf()\n"), LIMITS)
    lines = outcome.stderr.splitlines()
    assert outcome.code == 1
    assert [line.strip() for line in lines if line.strip().startswith("File")] == [
        'File "/work/main.py", line 4, in <module>',
        'File "/work/main.py", line 2, in f',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "<string>" not in sandbox.run(python("x =="), LIMITS).stderr


def test_a_program_ends_as_an_interpreter_would(sandbox: Sandbox) -> None:
    source = """
import atexit, threading, time
class Loud:
    def __del__(self): print("gone")
loud = Loud()
atexit.register(print, "at exit")
def later():
    time.sleep(0.05)
    print("thread")
threading.Thread(target=later).start()
print("main")
"""
    assert said(sandbox.run(python(source), LIMITS)).split("\n")[:4] == [
        "main", "thread", "at exit", "gone",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f(): print('fine')\nasyncio.run(f())",
        "import subprocess\nprint(subprocess.check_output(['echo', 'fine'], text=True), end='')",
        (
            "import multiprocessing as m\np = m.get_context('fork').Pool(2)\n"
            "print(p.map(str.strip, [' fine'])[0])"
        ),
        "import tempfile\nwith tempfile.TemporaryFile() as f: print('fine')",
        "import sqlite3\nprint(*sqlite3.connect('a.db').execute(\"select 'fine'\").fetchone())",
        "import threading\nt = threading.Thread(target=print, args=('fine',)); t.start(); t.join()",
        (
            "import sys, os\nassert __name__ == '__main__' and __file__.endswith('main.py')\n"
            "assert sys.argv == ['main.py'] and sys.path[0] == os.getcwd()\nprint('fine')"
        ),
        "import pickle\nclass A: x = 'fine'\nprint(pickle.loads(pickle.dumps(A())).x)",
    ],
)
def test_ordinary_programs_work(sandbox: Sandbox, source: str) -> None:
    assert said(sandbox.run(python(source), LIMITS)) == "fine\n"


def test_the_same_program_does_the_same_again(sandbox: Sandbox) -> None:
    source = "print(list({'a', 'b', 'c', 'd', 'e'}), hash('x'))"
    assert len({said(sandbox.run(python(source), LIMITS)) for _ in range(3)}) == 1


def test_other_commands_run_too(sandbox: Sandbox) -> None:
    assert said(sandbox.run(Program(("cat", "-", "more"), {"more": b"!"}, b"in"), LIMITS)) == "in!"
    assert said(sandbox.run(Program(("python", "-c", "print(5)")), LIMITS)) == "5\n"
    missing = sandbox.run(Program(("no-such-program",)), LIMITS)
    assert missing.code == 1
    assert "FileNotFoundError" in missing.stderr


def test_each_limit_is_named(sandbox: Sandbox) -> None:
    assert sandbox.run(python("while True: pass"), Limits(seconds=0.3)).end == "timeout"
    flood = sandbox.run(python("while True: print('x' * 1000)"), Limits(20.0, output_kb=4))
    assert (flood.end, flood.code, len(flood.stdout)) == ("output", None, 4096)
    short = sandbox.run(python("print('x' * 5000)"), Limits(20.0, output_kb=4))
    assert (short.end, len(short.stdout)) == ("output", 4096)
    greedy = "parts = []\nwhile True: parts.append(b'x' * 1000000)"
    assert sandbox.run(python(greedy), Limits(20.0, memory_mb=64)).end == "memory"
    crash = sandbox.run(python("import os; os.abort()"), LIMITS)
    assert (crash.end, crash.code, crash.ok) == ("killed", None, False)


def test_processes_that_share_memory_are_not_counted_twice(sandbox: Sandbox) -> None:
    source = """
import os, time
shared = b"x" * (40 << 20)
for _ in range(8):
    if not os.fork():
        time.sleep(0.5)
        os._exit(0)
time.sleep(0.5)
print("fine")
"""
    outcome = sandbox.run(python(source), Limits(20.0, memory_mb=128))
    assert said(outcome) == "fine\n"


def test_bytes_that_are_no_text_are_shown_as_such(sandbox: Sandbox) -> None:
    source = "import sys; sys.stdout.buffer.write(b'\\xff\\x00a')"
    assert said(sandbox.run(python(source), LIMITS)) == "\ufffd\x00a"


def test_a_lone_surrogate_is_an_error_of_the_program(sandbox: Sandbox) -> None:
    broken = sandbox.run(python("print('\ud800')"))
    assert (broken.end, broken.code) == ("exited", 1)
    assert "SyntaxError" in broken.stderr
    assert sandbox.run(python("print(len(open(0, 'rb').read()))", "\udfff")).stdout == "3\n"


def test_a_hanging_program_does_not_delay_others(sandbox: Sandbox) -> None:
    hanging: list[Outcome] = []
    sleep = python("import time; print('here', flush=True); time.sleep(1000)")
    thread = threading.Thread(target=lambda: hanging.append(sandbox.run(sleep, Limits(6.0))))
    thread.start()
    start = time.monotonic()
    outcomes = [sandbox.run(python(f"print({n})"), LIMITS) for n in range(5)]
    assert not hanging, "the others waited for the one that hangs"
    assert [said(outcome) for outcome in outcomes] == [f"{n}\n" for n in range(5)]
    assert time.monotonic() - start < 6
    thread.join()
    assert (hanging[0].end, hanging[0].stdout) == ("timeout", "here\n")


def test_many_threads_get_each_their_own(sandbox: Sandbox) -> None:
    found: dict[int, str] = {}

    def run(number: int) -> None:
        found[number] = sandbox.run(python(f"print({number})"), LIMITS).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}\n" for number in range(24)}


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../b", ""])
def test_file_names_outside_the_folder_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="a relative path"):
        Program(("cat",), {name: b""})


def test_an_unusable_command_is_rejected() -> None:
    for command in ((), ("cat", "a\0b")):
        with pytest.raises(ValueError, match="is empty, or"):
            Program(command)
