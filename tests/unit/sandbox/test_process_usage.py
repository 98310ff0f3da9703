"""The descendants of a process, and their CPU time."""

import os
import subprocess
import sys
import time

import pytest

from pettingllms.sandbox.process_usage import cpu_seconds, descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.communicate(b"x")
"""


def test_descendants_are_found_through_their_parents() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert {process.pid, child} <= set(descendants(os.getpid()))
    assert os.getpid() not in descendants(os.getpid())
    assert descendants(process.pid) == [child]
    assert descendants(child) == []
    process.communicate("\n", timeout=20)
    assert descendants(process.pid) == []


COMPUTES = """
import subprocess, sys, time
source = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.run([sys.executable, "-c", source])
alive = subprocess.Popen([sys.executable, "-c", source + "\\ninput()"], stdin=subprocess.PIPE)
print("ready", flush=True)
input()
alive.communicate(b"x")
"""


def test_cpu_time_counts_children_that_run_and_that_have_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMPUTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    ended = cpu_seconds(process.pid)
    assert ended >= 0.5
    deadline = time.monotonic() + 60
    while cpu_seconds(process.pid) < ended + 0.4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cpu_seconds(process.pid) >= 0.9
    process.communicate("\n", timeout=60)
    assert cpu_seconds(process.pid) == 0.0
