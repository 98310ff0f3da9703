"""Attempts to exhaust the machine, to outlive the sandbox, or to forge a verdict.

The control of each is the same attempt without a sandbox, or a smaller form of it if the attempt
would do harm. Programs print the maximum that they obtained.
"""

from attacks.cases import (
    Case,
    at_least,
    at_most,
    code_is,
    earns_nothing,
    ends,
    left_and_ended,
    next_finds,
    no_process_left,
    says,
    victim_lives,
)

COUNT = "\nprint(number, flush=True)\nos._exit(0)\n"
FORKS = """
import os, signal
number, children = 0, []
try:
    for _ in range({most}):
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
        number += 1
except OSError:
    pass
for child in children:
    os.kill(child, 9)
"""
THREADS = """
import os, threading
number, stop = 0, threading.Event()
try:
    for _ in range({most}):
        threading.Thread(target=stop.wait, daemon=True).start()
        number += 1
except RuntimeError:
    pass
"""
EAT = """
import os, time
parts = []
for number in range({most}):
    parts.append(b"x" * (1 << 20))
    print(number + 1, flush=True)
    time.sleep(0.001)
"""
EAT_TOGETHER = "import os\nfor _ in range({forks}): os.fork()\n" + EAT
EAT_SHARED = """
import mmap, os, time
for number in range({most}):
    part = mmap.mmap(-1, 1 << 20)
    part.write(b"x" * (1 << 20))
    globals()[f"part{{number}}"] = part
    print(number + 1, flush=True)
    time.sleep(0.001)
"""
WRITE = """
import os
number, out = 0, open("big", "wb", buffering=0)
try:
    for _ in range({most}):
        number += out.write(bytes(1 << 16)) // 1024
except OSError:
    pass
"""
WRITE_MANY = """
import os
number = 0
try:
    for index in range({most}):
        with open(f"part{{index}}", "wb", buffering=0) as out:
            number += out.write(bytes(1 << 14)) // 1024
except OSError:
    pass
"""
FILES = """
import os
number = 0
try:
    for index in range({most}):
        os.close(os.open(f"{{index}}", os.O_CREAT | os.O_WRONLY))
        number += 1
        if number % 100 == 0: print(number, flush=True)
except OSError:
    pass
"""
OPEN = """
import os
number = 0
try:
    for _ in range({most}):
        os.open("/dev/null", os.O_RDONLY); number += 1
except OSError:
    pass
"""
SPARSE = """
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
number = 0
with open("big", "wb") as file:
    try:
        file.truncate(1 << 30); number = 1 << 20
    except OSError:
        pass
"""
ORPHAN = """
import ctypes, os, signal, sys
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    ctypes.CDLL(None).prctl(15, WORLD["token"][:15].encode())
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    {act}
os.wait()
print("left", flush=True)
os._exit(0)
"""
SLEEP = "import time; time.sleep(60)"
CLOSED = "[os.close(n) for n in (0, 1, 2)]; " + SLEEP
REFORK = """
    ending = __import__('time').monotonic() + 3
    while __import__('time').monotonic() < ending:
        if os.fork(): os._exit(0)
"""
ENDLESS_CONTROL = """
import subprocess, sys
try:
    subprocess.run([sys.executable, "-c", {source!r}], timeout=0.7, stdout=subprocess.DEVNULL)
except subprocess.TimeoutExpired:
    print("goes on")
"""


def endless(source: str) -> Case:
    outside = ENDLESS_CONTROL.format(source=source)
    return Case(source, ends("timeout"), outside, says("goes on"), seconds=0.7)


def counted(source: str, tried: int, allowed: int, outside_number: int) -> Case:
    return Case(
        source.format(most=tried, forks=2) + COUNT,
        at_most(allowed),
        source.format(most=outside_number, forks=0) + COUNT,
        at_least(outside_number - 1 if "out.write" not in source else 2048),
    )


def orphan(act: str) -> Case:
    source = ORPHAN.format(act=act)
    return Case(source, no_process_left, source.replace(act, CLOSED), left_and_ended)


IGNORING = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(30)"
FLOOD = "import sys\nwhile True: sys.{}.write('x' * 4096)"
LIE = """
class Same:
    def __eq__(self, other): return True
    def __str__(self): return "I am equal to everything"
def solution(): return Same()
"""
SIGNALS = """
import os
for number in range(1, 65):
    try: os.kill({pid}, number)
    except OSError: pass
os._exit(7)
"""
KILL_ALL = """
import os, signal
if not os.fork():
    signal.pause()
os.kill(-1, {signal})
os._exit(7)
"""

EXHAUSTING = {
    "more processes than allowed": counted(FORKS, 64, 16, 24),
    "more threads than allowed": counted(THREADS, 64, 16, 24),
    "a fork bomb": Case(
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass", ends("timeout", "memory"),
        FORKS.format(most=24) + COUNT, at_least(24), seconds=0.7,
    ),
    "memory, bit by bit": counted(EAT, 300, 110, 128),
    "memory of many processes": counted(EAT_TOGETHER, 300, 60, 96),
    "shared memory": counted(EAT_SHARED, 300, 110, 128),
    "more memory than addresses": counted(
        "import os\nnumber = 0\ntry:\n number = len(bytearray({most} << 20)) >> 20\n"
        "except MemoryError: pass\n", 350, 0, 350,
    ),
    "a big file": counted(WRITE, 64, 1024, 64),
    "files that are big together": counted(WRITE_MANY, 256, 1024, 256),
    "files without end": counted(FILES, 50_000, 12_000, 5000),
    "a file with a hole": counted(SPARSE, 0, 1024, 1 << 20),
    "open files": counted(OPEN, 2000, 256, 300),
    "a flood on stdout": Case(
        FLOOD.format("stdout"), ends("output"),
        FLOOD.format("stdout").replace("while True", "for _ in range(100)"),
        lambda said, _: len(said) >= 400_000,
    ),
    "a flood on stderr": Case(
        FLOOD.format("stderr"), ends("output"),
        FLOOD.format("stderr").replace("while True", "for _ in range(100)"),
        lambda said, _: len(said) >= 400_000,
    ),
    "a loop without end": endless("while True: pass"),
    "a sleep that ignores signals": endless(IGNORING),
    "an expression that backtracks for ever": endless(
        "import re; re.match(r'(a+)+b', 'a' * 64)"
    ),
    "a number that is never finished": endless("print(len(str(7 ** (10 ** 8))))"),
    "silence behind closed pipes": endless(
        "import os, time\nfor n in (0, 1, 2): os.close(n)\ntime.sleep(30)"
    ),
    "a crash of the interpreter": Case(
        "import ctypes; ctypes.string_at(0)", ends("killed"),
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import ctypes; ctypes.string_at(0)'],"
        " stderr=subprocess.DEVNULL).returncode)", says("-11"),
    ),
}  # fmt: skip

OUTLIVING = {
    "an orphan that ignores signals": orphan(SLEEP),
    "an orphan that holds the pipes": orphan(SLEEP + "  # with its pipes open"),
    "an orphan that writes on": orphan("\n    while True: os.write(1, b'x')"),
    "an orphan that is never the same": orphan(REFORK),
    "an end to all other processes": Case(
        KILL_ALL.format(signal=15), victim_lives,
        "import os, signal, subprocess\n"
        "one = subprocess.Popen(['sleep', '30'], start_new_session=True)\n"
        "os.killpg(one.pid, signal.SIGTERM); print(one.wait())", says("-15"),
    ),
    "an end to all that stop it": Case(
        KILL_ALL.format(signal=9), victim_lives,
        "import os, signal, subprocess\n"
        "one = subprocess.Popen(['sleep', '30'], start_new_session=True)\n"
        "os.killpg(one.pid, signal.SIGKILL); print(one.wait())", says("-9"),
    ),
}  # fmt: skip

FORGING = {
    "success before the work": Case(
        "import os; os._exit(0)", earns_nothing,
        "import subprocess, sys\n"
        "code = subprocess.run([sys.executable, '-c', 'import os; os._exit(0); assert False'])\n"
        "print('passed' if code.returncode == 0 else 'failed')", says("passed"),
    ),
    "success by another program": Case(
        "import os; os.execv('/usr/bin/true', ['true'])", earns_nothing,
        "import subprocess; print(subprocess.run(['/usr/bin/true']).returncode)", says("0"),
    ),
    "an answer that equals every other": Case(
        LIE + "print(solution())", earns_nothing,
        LIE + "assert solution() == 42\nprint('passed')", says("passed"),
    ),
    "a comparison that was replaced": Case(
        "import builtins, operator\noperator.eq = lambda a, b: True\n"
        "builtins.str = lambda *a: '42'\nprint(41)", earns_nothing,
        "import operator\noperator.eq = lambda a, b: True\n"
        "print('passed' if operator.eq(41, 42) else 'failed')", says("passed"),
    ),
    "asserts that do nothing": Case(
        "import sys\nprint('42' if sys.flags.optimize else '41')", earns_nothing,
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-O', '-c', 'assert False']).returncode)", says("0"),
    ),
    "a reward written beforehand": Case(
        "for folder in ('.', '/tmp', '/dev/shm'):\n"
        "    open(folder + '/reward.txt', 'w').write('1')", next_finds("reward.txt"),
        "import subprocess, sys\nopen('reward.txt', 'w').write('1')\n"
        "code = 'print(open(\"reward.txt\").read())'\n"
        "subprocess.run([sys.executable, '-c', code])", says("1"),
    ),
    "a module for the next program": Case(
        "open('sitecustomize.py', 'w').write('print(42)')", next_finds("sitecustomize.py"),
        "import subprocess, sys\nopen('json.py', 'w').write('print(42)')\n"
        "subprocess.run([sys.executable, '-c', 'import json'])", says("42"),
    ),
    "a report on every open file": Case(
        "import os\nfor number in range(3, 1024):\n"
        "    try: os.write(number, b'0' * 32 + b' 0\\n')\n    except OSError: pass\nos._exit(7)",
        code_is(7),
        "import os\nread, write = os.pipe()\nfor number in range(3, 1024):\n"
        "    try: os.write(number, b'forged')\n    except OSError: pass\n"
        "print(os.read(read, 6))", says("forged"),
    ),
    "every signal to the one that reports": Case(
        SIGNALS.format(pid="1"), code_is(7),
        "import os, subprocess, sys\n"
        "one = subprocess.Popen(['sleep', '30'])\nos.kill(one.pid, 15); print(one.wait())",
        says("-15"),
    ),
    "every signal to its parent": Case(
        SIGNALS.format(pid="os.getppid()"), code_is(7),
        "import subprocess, sys\n"
        "code = 'import os; os.kill(os.getppid(), 9)'\n"
        "shell = subprocess.run([sys.executable, '-c', 'import subprocess, sys; "
        "subprocess.run([sys.executable, \"-c\", sys.argv[1]])', code])\nprint(shell.returncode)",
        says("-9"),
    ),
    "success of a child": Case(
        "import os\nif not os.fork(): print('fine'); os._exit(0)\nos.wait(); os._exit(7)",
        code_is(7),
        "import os\npid = os.fork()\nif not pid: os._exit(0)\nprint(os.waitpid(pid, 0)[1])",
        says("0"),
    ),
    "death that looks like success": Case(
        "import os; os.kill(os.getpid(), 9)", ends("killed"),
        "import subprocess, sys\n"
        "code = 'import os; os.kill(os.getpid(), 9)'\n"
        "print(subprocess.run([sys.executable, '-c', code]).returncode)", says("-9"),
    ),
}  # fmt: skip

ENDURING = {**EXHAUSTING, **OUTLIVING, **FORGING}
