"""The training loop on a simulated clock, with engines and learners that only take time."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import fakes
from fakes import FakeEngines, FakeLearners, FakeRun, Watched, faked, legal_cell
from simulated_clock import run_simulated

from pettingllms.config import parse_config
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop

NUM_STEPS = 12
NUM_SLOTS = 16
"""Replies that the engine samples at once."""


def seconds_of(
    folder: Path, max_staleness: int, learning: float, tail: float, patch: pytest.MonkeyPatch
) -> tuple[float, Watched]:
    """Simulated seconds of a run. A reply takes one second, or ten with the probability `tail`."""
    rollout = {"num_tasks": 32, "num_samples": 2, "max_staleness": max_staleness}
    config = parse_config(
        {
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "lora", "model": "m"}},
            "rollout": rollout,
            "train": {"num_steps": NUM_STEPS, "save_every": NUM_STEPS},
            "guard": {"action": "off"},
            "log": {"episodes": False},
        }
    )

    class TimedEngines(FakeEngines):
        async def sample(self, request: Any) -> Any:
            self.slots = getattr(self, "slots", None) or asyncio.Semaphore(NUM_SLOTS)
            async with self.slots:
                slow = random.Random(f"{request.task_id} {request.seed}").random() < tail
                await asyncio.sleep(10.0 if slow else 1.0)
                return await super().sample(request)

    call = FakeLearners.call

    async def timed(self: Any, method: str, policy: str = "", *args: Any) -> Any:
        await asyncio.sleep(learning if method == "train" else 0)
        return await call(self, method, policy, *args)

    patch.setattr(fakes, "FakeEngines", TimedEngines)
    patch.setattr(FakeLearners, "call", timed)
    place = RunFolder(folder)
    place.create(config)
    run = FakeRun(Watched())
    with faked(run, legal_cell):
        _, seconds = run_simulated(loop._train(place.config(), place, run.watched))
    assert len(run.watched.metrics) == NUM_STEPS
    return seconds, run.watched


def test_equal_phases_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        sampling, _ = seconds_of(tmp_path / "sampling", 0, 0.0, 0.0, patch)
    learning = sampling / NUM_STEPS
    with monkeypatch.context() as patch:
        alone, _ = seconds_of(tmp_path / "sync", 0, learning, 0.0, patch)
    assert alone == pytest.approx(2 * sampling, rel=0.02)
    with monkeypatch.context() as patch:
        together, watched = seconds_of(tmp_path / "async", 1, learning, 0.0, patch)
    print(f"sync {alone:.0f} s, async {together:.0f} s: {alone / together:.2f} times as fast")
    assert alone / together > 1.6, "the limit is 2"
    assert max(m["staleness"]["max"] for m in watched.metrics.values()) <= 1


def test_a_slow_reply_holds_up_only_its_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for max_staleness in (0, 2):
        with monkeypatch.context() as patch:
            folder = tmp_path / str(max_staleness)
            found.append(seconds_of(folder, max_staleness, 40.0, 0.02, patch)[0])
    print(f"{found[0] / found[1]:.2f} times as fast")
    assert found[0] / found[1] > 1.5
