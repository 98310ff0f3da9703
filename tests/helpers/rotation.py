"""Run as many slow tests as a time allows, in an order that the commit decides.

CI cannot run every slow test. `--rotate SEED` shuffles the tests by a seed (CI gives the commit),
`--start-before TIME` skips the tests that would start later, and `--skipped-to FILE` appends
their ids to a file that CI prints at its end. Each commit has another order, so no test is skipped
forever.
"""

import hashlib
import time
from pathlib import Path

import pytest


def add_options(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("rotation")
    group.addoption("--rotate", metavar="SEED", help="Shuffle the tests by this seed.")
    group.addoption(
        "--start-before",
        type=float,
        metavar="TIME",
        help="Skip tests that would start after this time (seconds since 1970).",
    )
    group.addoption("--skipped-to", type=Path, metavar="FILE", help="Append ids of skipped tests.")


def shuffle(items: list[pytest.Item], seed: str | None) -> None:
    """Order tests by a hash of the seed and their id. A file's tests share its fixtures and stay
    together, except smoke runs, which share none and take minutes each."""

    def key(item: pytest.Item) -> tuple[bytes, bytes]:
        is_alone = item.get_closest_marker("smoke") is not None
        unit = item.nodeid if is_alone else item.nodeid.partition("::")[0]
        return _digest(f"{seed} {unit}"), _digest(f"{seed} {item.nodeid}")

    if seed is not None:
        items.sort(key=key)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def skip_if_late(item: pytest.Item) -> None:
    """Skip a test that would start after the time given by `--start-before`."""
    end = item.config.getoption("--start-before")
    if end is None or time.time() < end:
        return
    if path := item.config.getoption("--skipped-to"):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{item.nodeid}\n")
    pytest.skip("not started: CI's time was used up")
