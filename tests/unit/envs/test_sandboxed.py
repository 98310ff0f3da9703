"""A program that was killed, or waited until its timeout, runs once more: the machine may be the
reason."""

import pytest

from pettingllms.envs.toolkit import sandboxed
from pettingllms.envs.toolkit.sandboxed import run_sandboxed
from pettingllms.sandbox import Limits, Outcome, open_sandbox, python


class Starving:
    """A sandbox on a machine that is busy for the first programs."""

    def __init__(self, num_starved: int, cpu_seconds: float) -> None:
        self.num_starved, self.cpu_seconds = num_starved, cpu_seconds
        self.num_runs = 0

    def run(self, program, limits):
        self.num_runs += 1
        if self.num_runs <= self.num_starved:
            return Outcome("timeout", None, "", "", limits.seconds, cpu_seconds=self.cpu_seconds)
        return open_sandbox().run(program, limits)


class Killing:
    """A sandbox of which the machine kills the first programs."""

    def __init__(self, num_killed: int) -> None:
        self.num_killed = num_killed
        self.num_runs = 0

    def run(self, program, limits):
        self.num_runs += 1
        if self.num_runs <= self.num_killed:
            return Outcome("killed", None, "", "", 0.1)
        return open_sandbox().run(program, limits)


def test_what_the_machine_killed_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    killing = Killing(1)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: killing)
    assert run_sandboxed(python("print(5)"), Limits(seconds=20)).stdout == "5\n"
    assert killing.num_runs == 2


def test_a_program_that_kills_itself_is_scored_after_the_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Killing(0)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: watching)
    program = python("import os; os.kill(os.getpid(), 9)")
    assert run_sandboxed(program, Limits(seconds=20)).end == "killed"
    assert watching.num_runs == 2


def test_a_program_that_a_busy_machine_did_not_run_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starving = Starving(1, cpu_seconds=1.0)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: starving)
    assert run_sandboxed(python("print(5)"), Limits(seconds=20)).stdout == "5\n"
    assert starving.num_runs == 2


def test_a_program_that_waits_is_scored_after_the_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Killing(0)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: watching)
    program = python("import time; time.sleep(60)")
    assert run_sandboxed(program, Limits(seconds=1.0)).end == "timeout"
    assert watching.num_runs == 2


def test_a_program_that_computes_until_its_timeout_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starving = Starving(1, cpu_seconds=12.0)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: starving)
    assert run_sandboxed(python("print(5)"), Limits(seconds=20)).end == "timeout"
    assert starving.num_runs == 1


def test_failures_are_final(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Killing(0)
    monkeypatch.setattr(sandboxed, "open_sandbox", lambda: watching)
    assert run_sandboxed(python("1 / 0"), Limits(seconds=20)).code == 1
    assert watching.num_runs == 1
