"""All escape attempts fail in the sandbox, and each works without one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks.drive import NAMES, attack, control, no_control
from attacks.hoarding import HOARDING
from attacks.world import world

from pettingllms.errors import SandboxError
from pettingllms.sandbox import open_sandbox
from pettingllms.sandbox.tiers import TIERS
from pettingllms.sandbox.users import UNPRIVILEGED
from pettingllms.sandbox.warm_pool import WarmSandbox

DRIVER = Path(__file__).parent / "attacks" / "drive.py"


def why_not(tier: str) -> str:
    try:
        open_sandbox(tier)
    except SandboxError as error:
        return str(error)
    return ""


REASONS = {tier: why_not(tier) for tier in TIERS}
RUNNABLE = [
    pytest.param(tier, marks=pytest.mark.skipif(bool(reason), reason=reason or "runs"))
    for tier, reason in REASONS.items()
]


@pytest.fixture(scope="module")
def known() -> Iterator[dict[str, Any]]:
    with world() as made:
        yield made


def test_there_are_enough_attempts_and_a_tier_to_make_them_on() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 190
    assert not all(REASONS.values()), "this machine runs no tier, so nothing was shown"


@pytest.mark.parametrize("name", NAMES)
def test_the_control_works_outside(name: str, known: dict[str, Any]) -> None:
    if reason := no_control(name):
        pytest.skip(reason)
    assert not control(name, known)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tier", RUNNABLE)
def test_the_sandbox_holds(tier: str, name: str, known: dict[str, Any]) -> None:
    assert not attack(name, open_sandbox(tier), known)


@pytest.mark.parametrize("name", HOARDING)
@pytest.mark.parametrize("tier", RUNNABLE)
def test_the_memory_limit_holds_without_cgroups(
    tier: str, name: str, known: dict[str, Any]
) -> None:
    sandbox = WarmSandbox(TIERS[tier], num_warm=0, cgroups=False)
    try:
        assert not attack(name, sandbox, known)
    finally:
        sandbox.close()


@pytest.mark.parametrize("tier", RUNNABLE)
def test_it_holds_without_asserts_and_for_a_plain_user(tier: str) -> None:
    user = [] if os.geteuid() else [str(UNPRIVILEGED)]
    done = subprocess.run(
        [sys.executable, "-O", str(DRIVER), tier, *user],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {"optimized": True, "num": len(NAMES), "wrong": {}}
