"""A league with real weights, over real learners and the small engine, in this process."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("openskill")

from fakes import Watched
from local import in_this_process

from pettingllms.config import RunConfig, parse_config
from pettingllms.evaluation.tournament import Tournament, parse_entries, run_tournament
from pettingllms.models import make_tiny
from pettingllms.policies.files import OPTIMIZER_FILE
from pettingllms.runs.checkpoint import load_checkpoint
from pettingllms.runs.folder import RunFolder
from pettingllms.training import train as loop
from pettingllms.types import read_episodes

NUM_STEPS = 4


def config_of(model: Path, kind: str) -> RunConfig:
    policies = {
        "lora": {"kind": "lora", "model": str(model), "rank": 4, "lr": 1e-2},
        "full": {"kind": "full", "model": str(model), "lr": 1e-2},
    }
    return parse_config(
        {
            "seed": 5,
            "env": {"id": "tic_tac_toe-v1", "terse": True},
            "algo": {"type": "rae"},
            "policies": {"p": policies[kind]},
            "rollout": {"num_tasks": 4, "num_samples": 1, "max_reply_tokens": 2},
            "inference": {"engine": "torch", "max_model_len": 64},
            "train": {"num_steps": NUM_STEPS, "save_every": 1, "keep_checkpoints": 9},
            "league": {"snapshot_every": 1, "max_snapshots": 3, "anchors": ["minimax"]},
        }
    )


def go(config: RunConfig, path: Path, dies_after: int = 0) -> Watched:
    folder, watched = RunFolder(path), Watched(dies_after)
    if not path.exists():
        folder.create(config)
    work = loop._train(folder.config(), folder, watched)
    if dies_after:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(work)
    else:
        asyncio.run(work)
    return watched


@pytest.fixture(scope="module", params=["lora", "full"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was left alone, one that died and went on, and the engine of the last."""
    root = tmp_path_factory.mktemp(request.param)
    texts = ["X\n123\n456\n789", "O\nX23\n4O6\n78X", "1", "5", "9"] * 20
    model = make_tiny(root / "tiny", texts=texts, hidden_size=64, vocab_size=320)
    config = config_of(model, request.param)
    with in_this_process() as made:
        whole = go(config, root / "whole")
        go(config, root / "cut", dies_after=3)
        go(config, root / "cut")
    return root, whole, made


def newest(run: Path) -> Any:
    return load_checkpoint(run / "checkpoints" / f"step-{NUM_STEPS:06d}")


def test_a_run_that_died_meets_the_same_opponents_with_the_same_weights(runs: Any) -> None:
    root, _, _ = runs
    (whole, files), (cut, other) = newest(root / "whole"), newest(root / "cut")
    assert json.dumps(cut.components["league"]) == json.dumps(whole.components["league"]), (
        "pool, matrix, ratings, counts"
    )
    assert cut == whole
    assert OPTIMIZER_FILE in files["p"]
    assert other == files, "all weights and moments, bit by bit"
    for step in range(1, NUM_STEPS + 1):
        name = f"episodes/step-{step:06d}-000.zip"
        assert (root / "cut" / name).read_bytes() == (root / "whole" / name).read_bytes()


def test_the_policy_moved_and_its_snapshots_did_not(runs: Any) -> None:
    root, watched, _ = runs
    state, files = newest(root / "whole")
    names = [f"p@{snapshot['step']}" for snapshot in state.components["league"]["pool"]]
    assert len(names) == 3
    assert set(files) == {"p", *names}
    weights = {name: some for name, some in files.items() if name != "p"}
    assert len({tuple(sorted(some.items())) for some in weights.values()}) == 3
    for name in names:
        for step in range(int(name.removeprefix("p@")) or 1, NUM_STEPS + 1):
            saved = load_checkpoint(root / "whole" / "checkpoints" / f"step-{step:06d}")[1]
            assert saved[name] == files[name]
    assert watched.metrics[NUM_STEPS]["league"]["size"] == 3


def test_the_turns_of_a_snapshot_have_its_version_and_train_no_policy(runs: Any) -> None:
    root, _, _ = runs
    met = set()
    for step in range(1, NUM_STEPS + 1):
        for episode in read_episodes(root / "whole" / f"episodes/step-{step:06d}"):
            assert episode.failure is None
            for turn in episode.turns:
                met.add(turn.policy)
                if turn.policy != "p":
                    assert turn.credit.advantage is None
                if "@" in turn.policy:
                    assert turn.policy_version == int(turn.policy.split("@")[1])
    assert any("@" in name for name in met)


def test_the_engine_serves_the_policy_and_its_pool_alone(runs: Any) -> None:
    root, _, made = runs
    state, _ = newest(root / "cut")
    names = {f"p@{snapshot['step']}" for snapshot in state.components["league"]["pool"]}
    assert set(made[-1].engine._versions) == {"p", *names}


def test_a_run_and_its_snapshots_meet_scripts_in_a_tournament(runs: Any) -> None:
    root, _, _ = runs
    run = root / "whole"
    from pettingllms.envs import make_env

    env = make_env("tic_tac_toe-v1", terse=True)
    entries = parse_entries(env, [str(run), f"{run}@all", "minimax", "minimax~0.2"])
    with in_this_process() as made:
        found = run_tournament(Tournament(env, entries, num_rounds=2), notify=print)
    assert len(found.players) == 6
    assert found.players[0] == "minimax", "a model that knows nothing loses to it"
    assert found.num_games == 15 * 2 * 2
    assert not found.unfinished
    is_lora = "adapter_model.safetensors" in entries[0].files
    assert len(made) == (1 if is_lora else 4), "adapters share an engine, whole models do not"
