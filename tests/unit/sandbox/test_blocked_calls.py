"""Blocked system calls are answered with an error and counted by name, per sandbox."""

import threading

import pytest

from pettingllms.errors import SandboxError
from pettingllms.sandbox import Limits, Sandbox, open_sandbox, python
from pettingllms.sandbox.blocked_calls import (
    MAX_COUNTED,
    BlockedCalls,
    from_metrics,
    is_probing,
    refused_calls,
    to_metrics,
)
from pettingllms.sandbox.tiers import TIERS

START = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
PROBES = (
    START
    + """
for _ in range({times}):
    assert libc.unshare(0x10000000) == -1, "it got through"
    assert ctypes.get_errno() in (1, 38)
print(libc.ptrace(0, 0, 0, 0), "done")
"""
)
INNOCENT = [
    "import asyncio\nasync def f(): await asyncio.sleep(0)\nasyncio.run(f())",
    "import subprocess\nsubprocess.run(['echo', 'fine'])",
    (
        "import asyncio\nfrom asyncio.subprocess import PIPE\nasync def f():\n"
        "    one = await asyncio.create_subprocess_exec('cat', stdin=PIPE, stdout=PIPE)\n"
        "    print(await one.communicate(b'fine'))\nasyncio.run(f())"
    ),
    "print(len(open('/dev/zero', 'rb', buffering=0).read(1000)))",
    "import multiprocessing as m\nm.get_context('fork').Pool(2).map(str, [1, 2])",
    "import sqlite3\nc = sqlite3.connect('a.db'); c.execute('create table t(a)'); c.commit()",
    "import threading\nt = threading.Thread(target=print); t.start(); t.join()",
    "import tempfile, shutil\nwith tempfile.TemporaryDirectory() as d: shutil.disk_usage(d)",
    "import random, decimal, json, re, datetime, uuid, zlib, hashlib; print(uuid.uuid4())",
    "import concurrent.futures as c\nwith c.ProcessPoolExecutor(2) as p: p.submit(abs, 1)",
    "import mmap\nprint(len(mmap.mmap(-1, 4096)))",
]


@pytest.fixture(scope="module", params=TIERS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        found = open_sandbox(request.param)
    except SandboxError as error:
        pytest.skip(str(error))
    if not found.is_logged:
        pytest.skip("another seccomp listener is active around us")
    return found


def test_blocked_calls_are_counted_by_name(sandbox: Sandbox) -> None:
    outcome = sandbox.run(python(PROBES.format(times=3)), Limits(seconds=20))
    assert (outcome.stdout, outcome.code) == ("-1 done\n", 0)
    assert outcome.refused == {"unshare": 3, "ptrace": 1}


@pytest.mark.parametrize("source", INNOCENT)
def test_ordinary_programs_have_no_blocked_calls(sandbox: Sandbox, source: str) -> None:
    outcome = sandbox.run(python(source), Limits(seconds=20))
    assert outcome.ok, outcome
    assert not outcome.refused


def test_children_and_other_programs_are_counted_too(sandbox: Sandbox) -> None:
    source = "import os, subprocess\nsubprocess.run(['unshare', '-U', 'true'])\n"
    source += "if not os.fork():\n    import socket; socket.socket()\nos.wait()"
    outcome = sandbox.run(python(source), Limits(seconds=20))
    assert outcome.refused["unshare"] == 1
    assert outcome.refused["socket"] == 1


def test_a_flood_is_blocked_but_counted_only_to_the_maximum(sandbox: Sandbox) -> None:
    outcome = sandbox.run(python(PROBES.format(times=5 * MAX_COUNTED)), Limits(seconds=20))
    assert outcome.stdout == "-1 done\n", outcome
    assert outcome.refused == {"unshare": MAX_COUNTED}


def test_a_program_that_dies_in_a_blocked_call_counts_as_killed(sandbox: Sandbox) -> None:
    source = (
        START
        + """
import os, signal, threading
def knock():
    while True: libc.unshare(0x10000000)
for _ in range(4): threading.Thread(target=knock, daemon=True).start()
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert sandbox.run(python(source), Limits(seconds=20)).end == "killed"


def test_children_killed_in_blocked_calls_do_not_end_the_count(sandbox: Sandbox) -> None:
    source = (
        START
        + """
import os, time
for _ in range(8):
    child = os.fork()
    if not child:
        while True: libc.unshare(0x10000000)
    time.sleep(0.01); os.kill(child, 9); os.wait()
libc.ptrace(0, 0, 0, 0)
"""
    )
    refused = sandbox.run(python(source), Limits(seconds=20)).refused
    assert refused["ptrace"] == 1 or refused.total() == MAX_COUNTED


def test_a_call_of_another_architecture_is_seen(sandbox: Sandbox) -> None:
    import signal

    raised = f"import os; os.kill(os.getpid(), {int(signal.SIGSYS)})"
    outcome = sandbox.run(python(raised), Limits(seconds=20))
    assert outcome.refused == {"call_of_another_architecture": 1}


def test_context_counts_only_its_programs(sandbox: Sandbox) -> None:
    program = python(PROBES.format(times=1))
    elsewhere = threading.Thread(target=sandbox.run, args=(program,))
    with refused_calls() as none:
        elsewhere.start()
        elsewhere.join()
    with refused_calls() as found:
        sandbox.run(program)
        sandbox.run(program)
    assert none == BlockedCalls()
    assert (found.num_programs, found.counts) == (2, {"unshare": 2, "ptrace": 2})


def test_counts_go_through_the_metrics_of_a_step() -> None:
    found = BlockedCalls(1)
    found.counts.update(ptrace=2, socket=1)
    written = to_metrics(found)
    assert written == {
        "refused_calls": 3.0, "refused_calls/ptrace": 2.0, "refused_calls/socket": 1.0,
    }  # fmt: skip
    assert from_metrics(written) == found.counts
    assert to_metrics(BlockedCalls(1)) == {"refused_calls": 0.0}
    assert to_metrics(BlockedCalls()) == {}
    assert from_metrics({"illegal": 1.0}) is None
    assert is_probing("ptrace")
    assert not is_probing("socket")
