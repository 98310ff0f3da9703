"""Sandboxes started by root have different users, so they cannot exhaust each other's limits."""

import os
import threading
import time
from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, Outcome, open_sandbox, python, users
from pettingllms.sandbox.tiers import TIERS


def test_users_are_not_shared_while_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(users, "_has_range", lambda: True)
    taken = [users.take_user() for _ in range(50)]
    assert len(set(taken)) == 50
    assert min(one for one in taken if one is not None) >= users.FIRST
    users.give_back(taken[7])
    assert users.take_user() == taken[7]
    for one in taken:
        users.give_back(one)
    monkeypatch.setattr(users, "_has_range", lambda: False)
    assert users.take_user() == users.UNPRIVILEGED
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert users.take_user() is None


def test_a_container_with_few_users_has_no_range() -> None:
    assert users._holds("         0          0 4294967295\n")
    assert not users._holds("0 100000 65536\n")
    assert not users._holds("0 1000 1\n1 100000 65536\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
@pytest.mark.parametrize("tier", TIERS)
def test_sandboxes_of_root_are_different_users_outside(tier: str) -> None:
    sandbox = open_sandbox(tier)
    done: list[Outcome] = []
    sleep = python("import time; print('here', flush=True); time.sleep(1.5)")
    threads = [
        threading.Thread(target=lambda: done.append(sandbox.run(sleep, Limits(20.0))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.8)
    owners = {Path(f"/proc/{box._first}").stat().st_uid for box in sandbox._running}
    for thread in threads:
        thread.join()
    assert all(outcome.ok for outcome in done)
    assert len(owners) == 3
    assert 0 not in owners
