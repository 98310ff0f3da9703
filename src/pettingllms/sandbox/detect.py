"""Which sandbox this machine has: each tier is tried before it is trusted, and none is made up."""

import os
import sys
from functools import cache

from pettingllms.errors import SandboxError, UnknownNameError, nearest
from pettingllms.sandbox.probe import probe
from pettingllms.sandbox.tiers import TIERS
from pettingllms.sandbox.warm_pool import WarmSandbox

VARIABLE = "PETTINGLLMS_SANDBOX"


def open_sandbox(tier: str = "") -> WarmSandbox:
    """The named tier, or the one that PETTINGLLMS_SANDBOX names, or the best that holds here."""
    wanted = tier or os.environ.get(VARIABLE, "")
    if wanted and wanted not in TIERS:
        source = f"{VARIABLE} names" if not tier else "there is"
        raise UnknownNameError(
            f"{source} no tier '{wanted}' of the sandbox; {nearest(wanted, TIERS)}"
        )
    problems = []
    for name in [wanted] if wanted else TIERS:
        found = _opened(name)
        if isinstance(found, WarmSandbox):
            return found
        problems.append(f"  - {name}: {found}. It needs: {TIERS[name].advice}")
    raise SandboxError(
        "this machine has no sandbox that holds, and what a model wrote runs in nothing less:\n"
        + "\n".join(problems)
    )


def standing() -> tuple[str, dict[str, str]]:
    """The tier that this machine has, if any, and why it has none of the better ones."""
    better: dict[str, str] = {}
    for name in TIERS:
        found = _opened(name)
        if isinstance(found, WarmSandbox):
            return name, better
        better[name] = found
    return "", better


def protections(tier: str) -> list[str]:
    """How a tier that holds here keeps the memory limit, and whether it logs refused calls."""
    sandbox = open_sandbox(tier)
    version = sandbox.cgroup_version
    return [
        f"memory limit kept by cgroup v{version}"
        if version
        else "memory limit kept by polling /proc, as we may create no cgroup here",
        "refused system calls are logged"
        if sandbox.is_logged
        else "refused system calls are not logged, as another seccomp listener is active",
    ]


@cache
def _opened(name: str) -> WarmSandbox | str:
    """A sandbox that passed its probe, or why there is none."""
    if not sys.platform.startswith("linux"):
        return "it is made of parts of Linux"
    sandbox = WarmSandbox(TIERS[name])
    try:
        probe(sandbox)
    except (SandboxError, OSError) as error:
        sandbox.close()
        return str(error)
    return sandbox
