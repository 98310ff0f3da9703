"""Fixtures of tests of suites: a machine without data, and a model that records its requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from suite_runs import Recorded

from pettingllms.datasets import code_formats, splits
from pettingllms.evaluation.suites import evaluate as module
from pettingllms.inference.http import JsonRenderer
from pettingllms.rollouts import Player
from pettingllms.types.sampling import Truncation


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETTINGLLMS_DATASETS", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    splits._read.cache_clear()
    code_formats.read_problems.cache_clear()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()

    @asynccontextmanager
    async def open_recorded(*_: Any) -> AsyncIterator[Any]:
        player = Player(
            "p", found, JsonRenderer(False), False, in_bytes=True, temperature=0.9,
            truncation=Truncation(0.5, 7),
        )  # fmt: skip
        yield lambda _env, _role: player

    monkeypatch.setattr(module, "open_evaluated", open_recorded)
    return found
