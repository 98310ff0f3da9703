"""What a process may use: by its affinity and its container, wherever it is asked."""

import os
from pathlib import Path

import pytest

from pettingllms.runtime import resources as machine


def test_a_container_bounds_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    unbound = machine.memory()[1]
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory()[1] == unbound
    assert machine.num_cores() >= 1
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("48576\n")
    assert machine.memory() == (1_000_000, 1_048_576)
    assert machine.num_cores() == 1


def test_threads_and_graders_are_counted_by_the_cores_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("math_verify", reason="needs the extra `math`")
    from pettingllms.grading import Grader

    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 9, 11})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = machine.CoreShare()
    assert (share.threads, share.cores) == (3, "5,9,11")
    assert Grader()._idle.qsize() == 3
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    assert (share.threads, share.cores) == (2, machine.UNBOUND)
    assert Grader()._idle.qsize() == 2
