"""Runs every attempt against a tier, without `assert`, so that `python -O` behaves the same.

As a program: `python -O drive.py TIER [USER]` prints what failed, as JSON. With USER, which
requires root, it runs as that user.
"""

import json
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from attacks import cases
from attacks.enduring import ENDURING as EXHAUSTING
from attacks.hoarding import HOARDING
from attacks.reaching import FOREIGN, ROOT_ONLY
from attacks.reaching import REACHING as OUTSIDE
from attacks.sharing import SHARING
from attacks.world import outside, source_of, world
from pettingllms.sandbox import Limits, Sandbox, open_sandbox, python

REACHING = {**OUTSIDE, **SHARING}
ENDURING = {**EXHAUSTING, **HOARDING}
NAMES = [
    name for name in (*REACHING, *ENDURING) if name not in FOREIGN or platform.machine() == "x86_64"
]
NEWEST = "make a call that is newer than the filter"


def control(name: str, known: dict[str, Any]) -> str:
    """Why the control does not show that the attempt works outside; empty if it does."""
    if name in ENDURING:
        return cases.control(ENDURING[name], known)
    said = outside(source_of(REACHING[name], known), known)
    return "" if "GOT IT" in said else f"the control said {said[-300:]!r}"


def no_control(name: str) -> str:
    """Why an attempt's control cannot run here; empty if it can."""
    if name in ROOT_ONLY and os.geteuid():
        return "only root can do this outside"
    if name == NEWEST and tuple(map(int, platform.release().split(".")[:2])) < (6, 17):
        return "the kernel has no such call yet"
    return ""


def attack(name: str, sandbox: Sandbox, known: dict[str, Any]) -> str:
    """What an attempt achieved; empty if the attempt ran and the sandbox stopped it."""
    if name in ENDURING:
        return cases.attack(ENDURING[name], sandbox, known)
    outcome = sandbox.run(python(source_of(REACHING[name], known)), Limits(seconds=10))
    if "GOT IT" in outcome.stdout:
        return "got what it wanted"
    made = outcome.end == "killed" if name in FOREIGN else outcome.stdout.startswith("held")
    return "" if made else f"the attempt was not made: {outcome!r}"


def drive(tier: str) -> dict[str, str]:
    """All faults, by name of the attempt."""
    sandbox = open_sandbox(tier)
    with world() as known, ThreadPoolExecutor(4) as threads:
        reaching = [name for name in NAMES if name in REACHING]
        results = threads.map(lambda name: attack(name, sandbox, known), reaching)
        found = dict(zip(reaching, results, strict=True))
        found |= {name: attack(name, sandbox, known) for name in NAMES if name in ENDURING}
    return {name: wrong for name, wrong in found.items() if wrong}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        os.setgroups([])
        os.setresgid(*[int(sys.argv[2])] * 3)
        os.setresuid(*[int(sys.argv[2])] * 3)
    optimized = not __debug__
    print(json.dumps({"optimized": optimized, "num": len(NAMES), "wrong": drive(sys.argv[1])}))
