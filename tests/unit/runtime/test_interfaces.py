"""The interface of an address."""

import time
from pathlib import Path

import pytest

from pettingllms.errors import ClusterError
from pettingllms.runtime import progress
from pettingllms.runtime.interfaces import addresses, interface_of


def test_the_interface_of_loopback_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert ("127.0.0.1", "lo") in addresses()


def test_an_address_of_another_machine_is_an_error_that_names_it() -> None:
    with pytest.raises(ClusterError, match=r"192\.0\.2\.1.*127\.0\.0\.1 \(lo\).*node-ip-address"):
        interface_of("192.0.2.1")


def test_a_tick_is_seen_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_files", [])
    progress.tick()  # no file shows the progress yet
    file = tmp_path / "progress"
    progress.show_progress_in(file)
    now = time.monotonic()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now + 100)
    monkeypatch.setattr(progress.time, "time", lambda: 0.0)  # the wall clock does not count
    assert progress.quiet_seconds(file) == pytest.approx(100, abs=5)
    progress.tick()
    assert progress.quiet_seconds(file) < 5
