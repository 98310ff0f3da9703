"""The loop with a team that needs no engine: when a run ends, and what it remembers."""

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import SavesFiles
from plays import linear, overwrite, rewards
from toys import Relay

from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import ConfigError
from pettingllms.policies.files import MODEL_FILE, read_content
from pettingllms.runs.callbacks import Callback
from pettingllms.runs.folder import RunFolder
from pettingllms.training.train import _train, train

TOKENS_OF_A = 10
"""That the one play of a step samples for policy_a, which learns."""


class FakeTeam(SavesFiles):
    """Plays one episode a step: ten tokens of a, which learns, and ninety of b, which does not."""

    num_plays = 0

    def __init__(self, config: RunConfig) -> None:
        self.config, self.env = config, Relay()
        self.versions, self.weight_hashes = {"policy_a": 0}, {"policy_a": "mark"}

    @classmethod
    async def start(cls, config: RunConfig, notify: Any) -> "FakeTeam":
        return cls(config)

    async def play(self, tasks: Any, seed: int, **options: Any) -> list[Any]:
        FakeTeam.num_plays += 1
        episode = linear(tasks[0].id, 0, ("a", rewards({"a": 1.0})), ("b", rewards(team=1.0)))
        for turn, number in zip(episode.turns, (TOKENS_OF_A, 90), strict=True):
            overwrite(turn, response_ids=np.arange(number, dtype=np.int32))
        return [episode]

    async def load(self, versions: Any, saved: Any) -> None: ...
    async def learn_all(self, episodes: Any, joint_actions: Any, *at: int) -> tuple[Any, Any]:
        return {}, {}

    async def publish(self, policies: Any) -> dict[str, float]:
        return {}

    async def use(self) -> Any:
        return SimpleNamespace(engines={}, learners={})

    def names(self) -> list[str]:
        return ["policy_a"]

    async def stop(self) -> None: ...


@pytest.fixture(autouse=True)
def fake_team(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pettingllms.cluster.team")
    module.Team = FakeTeam
    monkeypatch.setitem(sys.modules, "pettingllms.cluster.team", module)
    monkeypatch.setattr(FakeTeam, "num_plays", 0)


TEAM = {
    "env": {"id": "toys:Relay"},
    "algo": {"type": "grpo"},
    "policies": {
        "policy_a": {"kind": "full", "model": "m"},
        "policy_b": {"kind": "scripted"},
    },
    "roles": {"a": "policy_a", "b": "policy_b"},
    "rollout": {"num_tasks": 1},
    "log": {"episodes": False},
}


def run(path: Path, **train: Any) -> list[dict[str, Any]]:
    """Train, or go on in the folder; its metrics."""
    config = parse_config({**TEAM, "train": train})
    folder = RunFolder(path)
    path.mkdir(exist_ok=True)
    asyncio.run(_train(config, folder, Callback()))
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_run_ends_and_saves_with_the_step_that_reaches_its_tokens(tmp_path: Path) -> None:
    metrics = run(tmp_path, num_steps=50, save_every=50, max_tokens=2 * TOKENS_OF_A + 1)
    assert [row["rollout/total_tokens"] for row in metrics] == [10, 20, 30]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000003"]


def test_tokens_that_are_reached_exactly_end_a_run(tmp_path: Path) -> None:
    assert len(run(tmp_path, num_steps=50, max_tokens=2 * TOKENS_OF_A)) == 2


def test_steps_end_a_run_that_has_tokens_left(tmp_path: Path) -> None:
    assert len(run(tmp_path, num_steps=2, max_tokens=10_000)) == 2
    assert len(run(tmp_path / "free", num_steps=2)) == 2


def test_the_count_goes_on_where_the_run_was_left(tmp_path: Path) -> None:
    run(tmp_path, num_steps=2, max_tokens=35)
    metrics = run(tmp_path, num_steps=50, max_tokens=35)
    assert [row["rollout/total_tokens"] for row in metrics] == [10, 20, 30, 40]


def test_learners_get_the_tokens_before_each_step_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedules by tokens depend on them, so a resumed run must continue with the same numbers."""
    told: list[tuple[int, int]] = []

    async def learn_all(self: Any, episodes: Any, joint_actions: Any, *at: int) -> tuple[Any, Any]:
        told.append((at[0], at[1]))
        return {}, {}

    monkeypatch.setattr(FakeTeam, "learn_all", learn_all)
    run(tmp_path / "whole", num_steps=50, max_tokens=35)
    whole, told[:] = list(told), []
    run(tmp_path / "left", num_steps=2, max_tokens=35)
    run(tmp_path / "left", num_steps=50, max_tokens=35)
    assert told == whole == [(1, 0), (2, 10), (3, 20), (4, 30)]


def test_a_run_that_is_over_plays_nothing_more(tmp_path: Path) -> None:
    run(tmp_path, num_steps=50, max_tokens=35)
    done = FakeTeam.num_plays
    assert len(run(tmp_path, num_steps=50, max_tokens=35)) == 4
    assert FakeTeam.num_plays == done == 4


def test_a_run_that_is_stopped_before_its_first_step_can_be_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(*_: Any, **__: Any) -> list[Any]:
        return await asyncio.sleep(60, [])

    def stopped(_: Any) -> asyncio.Event:
        stop = asyncio.Event()
        stop.set()
        return stop

    monkeypatch.setattr(FakeTeam, "play", play)
    monkeypatch.setattr("pettingllms.training.train.stop_on_interrupt", stopped)
    assert run(tmp_path, num_steps=2) == []
    state, _ = RunFolder(tmp_path).newest(print)
    assert (state.step, state.versions, state.weight_hashes) == (
        0,
        {"policy_a": 0},
        {"policy_a": "mark"},
    )
    (files,) = RunFolder(tmp_path).weights(["policy_a"]).values()
    assert {name: read_content(file) for name, file in files.items()} == {MODEL_FILE: b"w"}


def test_updates_that_a_critic_skipped_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def learn_all(*_: Any) -> tuple[Any, Any]:
        return {}, {"critic:well": {"skipped_updates": 0}, "critic:ill": {"skipped_updates": 2}}

    said: list[str] = []
    monkeypatch.setattr(FakeTeam, "learn_all", learn_all)
    monkeypatch.setattr(Callback, "on_message", lambda _, text: said.append(text))
    run(tmp_path, num_steps=1)
    assert [text for text in said if "critic:" in text] == [
        "'critic:ill' skipped 2 non-finite updates"
    ]


def test_a_run_is_trained_by_one_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pettingllms.training.train.ray_running", lambda _: pytest.fail("it was begun")
    )
    folder = RunFolder(tmp_path)
    with folder.taken(), pytest.raises(ConfigError, match="another process is training this run"):
        train(parse_config(TEAM), folder)
