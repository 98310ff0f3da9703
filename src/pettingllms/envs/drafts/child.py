"""The process that runs a draft: it loads what drafts may import, sandboxes itself, then reads one.

`grading.isolation` removes files, network, other processes and capabilities before the first byte
of the draft is read. The report goes through a pipe that the draft can reach too, so a hostile
draft can fake it: a report helps an author, and is no proof. Only `check` starts this module.
"""

import importlib
import json
import os
import resource
import sys
from types import ModuleType
from typing import Any

from pettingllms.envs.contract import find_faults
from pettingllms.envs.contract_faults import Fault
from pettingllms.errors import describe
from pettingllms.grading.isolation import close_for_child, close_for_good

NAME = "draft"
MODULES = (
    "abc", "bisect", "collections", "collections.abc", "copy", "dataclasses", "datetime",
    "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math",
    "operator", "pydantic", "random", "re", "statistics", "string", "textwrap", "typing",
)  # fmt: skip
"""What a draft may import besides this package."""
NAMES = (
    "EnvConfig", "Environment", "Failed", "Message", "Rewards", "Scored", "StepResult",
    "Submission", "Task", "assistant", "check_env", "system", "user",
)  # fmt: skip
"""What a draft may use of this package: names that are imported when first used."""


class OnlyLoaded:
    """An import hook that finds no further module, and names those that a draft may import."""

    def find_spec(self, name: str, *_: object) -> None:
        raise ModuleNotFoundError(
            f"a draft cannot import '{name}'; it can import pettingllms and {', '.join(MODULES)}"
        )


def serve(num_episodes: int, cpu_seconds: int, memory_mb: int) -> None:
    """Read a draft from stdin, check it, and write a report to stdout."""
    source, report = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    _load_modules()
    close_for_good()
    limits = {"AS": memory_mb << 20, "CPU": cpu_seconds, "FSIZE": 0, "CORE": 0}
    for kind, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (most, most))
    close_for_child()
    sys.meta_path[:] = [OnlyLoaded()]
    with os.fdopen(source, "rb") as file:
        found = check(file.read().decode(), num_episodes)
    os.write(report, json.dumps(found).encode() + b"\n")
    os._exit(0)


def check(source: str, num_episodes: int) -> dict[str, Any]:
    """Execute a draft and check its environment; the report as JSON values."""
    try:
        env, name = _environment(source)
    except BaseException as error:  # noqa: BLE001 - any exception of a draft
        return _report("", None, [Fault("does-not-load", describe(error))])
    return _report(name, env, find_faults(env, num_episodes))


def _load_modules() -> None:
    package = importlib.import_module("pettingllms")
    for name in NAMES:
        getattr(package, name)
    for name in MODULES:
        importlib.import_module(name)
    importlib.import_module("pettingllms.envs.solo")  # imported when a solo form is made


def _environment(source: str) -> tuple[Any, str]:
    """The environment that a draft defines, and the name of its class."""
    from pettingllms.envs.base import Environment

    module = ModuleType(NAME)
    sys.modules[NAME] = module  # pickled states name it
    exec(compile(source, f"{NAME}.py", "exec"), module.__dict__)  # noqa: S102 - in the sandbox
    found = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Environment) and one.__module__ == NAME
    ]
    if len(found) != 1:
        names = ", ".join(one.__name__ for one in found) or "none"
        raise TypeError(f"expected one class derived from Environment, found {names}")
    return found[0](), found[0].__name__


def _report(name: str, env: Any, faults: list[Fault]) -> dict[str, Any]:
    roles = [] if env is None or any(f.name == "raises" for f in faults) else list(env.roles)
    return {
        "class": name,
        "id": str(getattr(env, "id", "")),
        "roles": [str(role) for role in roles],
        "faults": [[fault.name, fault.detail] for fault in faults],
    }
