"""The descendants of a process."""

import os
import subprocess
import sys

import pytest

from pettingllms.sandbox.process_usage import descendants

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
