"""A case: a program, checks of its outcome, and a control that runs without a sandbox."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attacks.world import outside
from pettingllms.sandbox import Limits, Outcome, Sandbox, python

SMALL = Limits(seconds=5.0, memory_mb=64, num_processes=16, disk_mb=1, output_kb=16)


@dataclass(frozen=True)
class Scene:
    """Input of a check."""

    sandbox: Sandbox
    outcome: Outcome
    known: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A program, the check of its run in the sandbox, and its control outside."""

    source: str
    held: Callable[[Scene], object]
    control: str
    """A program that runs outside the sandbox."""
    shows: Callable[[str, dict[str, Any]], object]
    """Whether the output of the control shows that the attempt works there."""
    seconds: float = SMALL.seconds


def at_most(most: int) -> Callable[[Scene], object]:
    """Check that the last printed number is at most this, regardless of how the program ended."""
    return lambda scene: int((scene.outcome.stdout.split() or ["0"])[-1]) <= most


def at_least(least: int) -> Callable[[str, dict[str, Any]], object]:
    return lambda said, _: int(said.split()[-1]) >= least


def ends(*kinds: str) -> Callable[[Scene], object]:
    """Check how the program ended, and that it ended in time."""
    return lambda scene: scene.outcome.end in kinds and scene.outcome.seconds < SMALL.seconds + 5


def says(text: str) -> Callable[[str, dict[str, Any]], object]:
    return lambda said, _: text in said


def earns_nothing(scene: Scene) -> bool:
    """Grade the output outside the sandbox; the answer is 42."""
    return scene.outcome.stdout.strip() != "42"


def code_is(code: int) -> Callable[[Scene], object]:
    return lambda scene: scene.outcome.end == "exited" and scene.outcome.code == code


def named(name: str) -> list[int]:
    """Processes of this machine with a given name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def no_process_left(scene: Scene) -> bool:
    return not named(scene.known["token"][:15]) and scene.outcome.seconds < SMALL.seconds


def left_and_ended(_: str, known: dict[str, Any]) -> bool:
    """Whether the control left a process behind, which is killed here by its process id."""
    time.sleep(0.1)
    found = named(known["token"][:15])
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


def next_finds(name: str) -> Callable[[Scene], object]:
    """Check that the next program finds no trace of this one."""
    look = f"import os; print([os.path.exists(f + '/{name}') for f in ('.', '/tmp', '/dev/shm')])"
    return lambda scene: "True" not in scene.sandbox.run(python(look)).stdout


def victim_lives(scene: Scene) -> bool:
    os.kill(scene.known["victim"], 0)
    return code_is(7)(scene) is True


def whole(source: str, known: dict[str, Any]) -> str:
    return f"WORLD = {known!r}\n{source}"


def control(case: Case, known: dict[str, Any]) -> str:
    """The fault of the control; empty if it shows that the attempt works."""
    said = outside(whole(case.control, known), known)
    return "" if case.shows(said, known) else f"the control said {said[-300:]!r}"


def attack(case: Case, sandbox: Sandbox, known: dict[str, Any]) -> str:
    """The protection that failed; empty if all worked."""
    limits = replace(SMALL, seconds=case.seconds)
    outcome = sandbox.run(python(whole(case.source, known)), limits)
    return (
        "" if case.held(Scene(sandbox, outcome, known)) else f"it did not hold: {outcome!r}"[:600]
    )
