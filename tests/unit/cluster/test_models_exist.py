"""What is not here is said before Ray is started, which takes a while."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pettingllms.cluster import inference_team as playing
from pettingllms.cluster import start
from pettingllms.config import ClusterConfig, parse_config
from pettingllms.errors import ClusterError, ModelError
from pettingllms.runs.folder import RunFolder
from pettingllms.training.train import train

CONFIG = {
    "env": {"id": "plan_path-v1"},
    "algo": {"type": "grpo"},
    "policies": {"p": {"kind": "full", "model": "nobody/has-this"}},
}


def no_ray(_: Any) -> None:
    pytest.fail("Ray was started")


def test_a_run_without_its_model_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pettingllms.training.train.ray_running", no_ray)
    with pytest.raises(ModelError, match="nobody/has-this.* not found"):
        train(parse_config(CONFIG), RunFolder(tmp_path))


def test_neither_does_play_without_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with playing.inference_team(parse_config(CONFIG), {}, print):
            pass

    monkeypatch.setattr(playing, "ray_running", no_ray)
    with pytest.raises(ModelError, match="nobody/has-this.* not found"):
        asyncio.run(play())


def test_a_run_without_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "find_spec", lambda _: None)
    said = r"Ray, which is not installed; pip install .*\[cpu\]"
    with pytest.raises(ClusterError, match=said), start.ray_running(ClusterConfig()):
        pytest.fail("it was begun")
