"""Faults of an environment: how the checks raise, collect and report them."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pettingllms.envs.base import Environment
from pettingllms.errors import EnvContractError, describe

Env = Environment[Any, Any]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Fault:
    """One violation of the contract: a name that tests can match, and what was observed."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.name}] {self.detail}"


class ContractViolation(Exception):  # noqa: N818 - carries a fault to `collect_fault`
    """Raised by a check; `collect_fault` records its fault."""

    def __init__(self, name: str, detail: str) -> None:
        self.fault = Fault(name, detail)


def require_no_faults(env: Env, faults: Iterable[Fault]) -> None:
    """Raise EnvContractError that lists all faults, if there are any."""
    lines = "\n".join(f"  - {fault}" for fault in faults)
    if lines:
        name = getattr(env, "id", type(env).__name__)
        raise EnvContractError(f"'{name}' breaks the environment contract:\n{lines}")


def collect_fault(faults: dict[str, Fault], check: Callable[..., None], *args: object) -> None:
    """Run a check and record the fault it raises, the first of each name."""
    try:
        check(*args)
    except ContractViolation as violation:
        faults.setdefault(violation.fault.name, violation.fault)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an unexpected error is a fault too
        faults.setdefault("raises", Fault("raises", describe(error)))


def call(method: Callable[[], ResultT], name: str) -> ResultT:
    """Call a method of the environment; an exception becomes the fault `raises` of `name`."""
    try:
        return method()
    except ContractViolation:
        raise
    except (Exception, SystemExit) as error:
        raise ContractViolation("raises", f"{name} raised {describe(error)}") from error


def run_with_timeout(seconds: float, check: Callable[..., None], *args: object) -> None:
    """Run a check on a thread; on a timeout raise the fault `hangs` with the current line."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            check(*args)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="env-check")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - no public API
        where = traceback.extract_stack(frame)[-1]
        raise ContractViolation(
            "hangs",
            f"not done after {seconds:g} s; it is in {where.name}, line {where.lineno} of "
            f"{where.filename}",
        )
    if errors:
        raise errors[0]
