"""Finds a working sandbox on this machine. Each tier is probed before it is used."""

import os
import sys
from functools import cache

from pettingllms.errors import SandboxError, UnknownNameError, nearest
from pettingllms.sandbox.probe import probe
from pettingllms.sandbox.tiers import TIERS
from pettingllms.sandbox.warm_pool import WarmSandbox

VARIABLE = "PETTINGLLMS_SANDBOX"


def open_sandbox(tier: str = "") -> WarmSandbox:
    """Open the given tier, the tier in PETTINGLLMS_SANDBOX, or the best tier that works here.

    Raises SandboxError if no such tier works: there is no fallback without a sandbox.
    """
    wanted = tier or os.environ.get(VARIABLE, "")
    if wanted and wanted not in TIERS:
        source = VARIABLE if not tier else "tier"
        raise UnknownNameError(
            f"{source}: unknown sandbox tier '{wanted}'; {nearest(wanted, TIERS)}"
        )
    problems = []
    for name in [wanted] if wanted else TIERS:
        found = _opened(name)
        if isinstance(found, WarmSandbox):
            return found
        problems.append(f"  - {name}: {found}. To fix it: {TIERS[name].advice}")
    raise SandboxError(
        "no working sandbox found; refusing to run model-generated code:\n" + "\n".join(problems)
    )


def find_tier() -> tuple[str, dict[str, str]]:
    """The best tier that works here (empty if none), and why each better tier does not."""
    better: dict[str, str] = {}
    for name in TIERS:
        found = _opened(name)
        if isinstance(found, WarmSandbox):
            return name, better
        better[name] = found
    return "", better


def protections(tier: str) -> list[str]:
    """How a working tier enforces the memory limit, and whether it logs blocked calls."""
    sandbox = open_sandbox(tier)
    version = sandbox.cgroup_version
    return [
        f"memory limit enforced by cgroup v{version}"
        if version
        else "memory limit enforced by polling /proc, because cgroups cannot be created here",
        "blocked system calls are logged"
        if sandbox.is_logged
        else "blocked system calls are not logged, because another seccomp listener is active",
    ]


@cache
def _opened(name: str) -> WarmSandbox | str:
    """A sandbox that passed its probe, or the reason for the failure."""
    if not sys.platform.startswith("linux"):
        return "the sandbox requires Linux"
    sandbox = WarmSandbox(TIERS[name])
    try:
        probe(sandbox)
    except (SandboxError, OSError) as error:
        sandbox.close()
        return str(error)
    return sandbox
