"""Faults of an environment: how a check finds one, and how all are told at once."""

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
    """One broken promise: a name that tests can look for, and where it was seen."""

    name: str
    detail: str

    def __str__(self) -> str:
        return f"[{self.name}] {self.detail}"


class Broken(Exception):  # noqa: N818 - carries a fault to the one place that collects them
    """What a check raises; `collect` keeps its fault."""

    def __init__(self, name: str, detail: str) -> None:
        self.fault = Fault(name, detail)


def refuse(env: Env, faults: Iterable[Fault]) -> None:
    """Raise EnvContractError if there is any fault, with all of them."""
    lines = "\n".join(f"  - {fault}" for fault in faults)
    if lines:
        name = getattr(env, "id", type(env).__name__)
        raise EnvContractError(f"'{name}' breaks the environment contract:\n{lines}")


def collect(faults: dict[str, Fault], check: Callable[..., None], *args: object) -> None:
    """Run a check; keep the fault that it found, the first of each name."""
    try:
        check(*args)
    except Broken as broken:
        faults.setdefault(broken.fault.name, broken.fault)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what no check foresaw is a fault too
        faults.setdefault("raises", Fault("raises", describe(error)))


def call(ask: Callable[[], ResultT], what: str) -> ResultT:
    """What the environment answers; if it raises, that is a fault of the method `what`."""
    try:
        return ask()
    except Broken:
        raise
    except (Exception, SystemExit) as error:
        raise Broken("raises", f"{what} raised {describe(error)}") from error


def in_time(seconds: float, check: Callable[..., None], *args: object) -> None:
    """Run a check on a thread; Broken, with the line that is under way, if it does not end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            check(*args)
        except BaseException as error:  # noqa: BLE001 - raised again below, where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="env-check")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to look
        where = traceback.extract_stack(frame)[-1]
        raise Broken(
            "hangs",
            f"not done after {seconds:g} s; it is in {where.name}, line {where.lineno} of "
            f"{where.filename}",
        )
    if errors:
        raise errors[0]
