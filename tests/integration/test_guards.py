"""Guards over the real small engine and the real learner: a taught collapse pauses a run.

The policy that collapsed and the one that did not differ in what they were taught alone.
"""

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

from drive import Quiet
from in_process import in_process
from running import HERE
from typer.testing import CliRunner

from pettingllms.cli.main import app
from pettingllms.config import RunConfig, parse_config
from pettingllms.errors import PausedError
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop
from pettingllms.training.sft import _sft, _supervised, items_by_policy, source_episodes

STEPS = 10
ENV = f"{HERE / 'stuck.py'}:Stuck"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pettingllms.models import make_tiny

    texts = ["X\nXO3\n4O6\n78X", "O\n123\n456\n789", *"123456789"] * 20
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return make_tiny(folder, texts=texts, hidden_size=64, vocab_size=280)


def config_of(model: Path, player: str, start: str = "") -> RunConfig:
    return parse_config(
        {
            "seed": 3,
            "env": {"id": ENV, "terse": True, "max_opening": 6},
            "algo": {"type": "grpo"},
            "policies": {"p": {"kind": "full", "model": str(model), "lr": 1e-5}},
            "rollout": {"num_tasks": 16, "num_samples": 2, "max_reply_tokens": 4},
            "inference": {"engine": "torch", "max_model_len": 64},
            "sft": {"player": player, "num_episodes": 100, "num_steps": 60, "lr": 3e-3}
            | {"num_turns": 64},
            "train": {"num_steps": STEPS, "save_every": 2, "init_from": start},
        }
    )


def trained(root: Path, model: Path, player: str) -> RunFolder:
    """Teach a player's replies, and train from there."""
    config, warm, run = config_of(model, player), RunFolder(root / "sft"), RunFolder(root / "run")
    warm.create(config, supervised=True)
    items = items_by_policy(config, source_episodes(config))
    asyncio.run(_sft(_supervised(config), items, warm, Quiet()))
    config = config_of(model, player, str(warm.path))
    run.create(config)
    asyncio.run(loop._train(config, run, Quiet()))
    return run


def rows_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_policy_that_repeats_one_reply_pauses_within_ten_steps(
    model: Path, tmp_path: Path
) -> None:
    with in_process(), pytest.raises(PausedError) as caught:
        trained(tmp_path, model, "stuck")
    rows = rows_of(tmp_path / "run")
    assert len(rows) < STEPS
    assert all(row["policies/p/distinct_replies"] < 1.05 for row in rows)
    assert f"after step {len(rows)}, a policy has collapsed" in str(caught.value)
    assert "Most frequent reply: '5'" in str(caught.value)
    assert (tmp_path / "run" / "checkpoints" / f"step-{len(rows):06d}").is_dir()


def test_a_sound_run_is_not_paused_and_can_be_played_against(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_process():
        run = trained(tmp_path, model, "noisy")
        rows = rows_of(run.path)
        assert len(rows) == STEPS
        assert all(row["policies/p/distinct_replies"] > 2 for row in rows)
        monkeypatch.setattr(
            "pettingllms.cluster.inference_team.ray_running", lambda _: nullcontext()
        )
        players: list[Any] = ["--player", "x=random", "--player", f"o={run.path}", "--delay", "0"]
        played = CliRunner().invoke(app, ["play", ENV, "terse=true", *players])
    assert played.exit_code == 0, played.output
    assert "the end" in played.output
    assert played.output.count("player_o (") >= 2
