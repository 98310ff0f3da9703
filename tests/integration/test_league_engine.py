"""A league on real engines: killed and resumed it is the same league; its snapshots play on."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import cli, kill_all, metrics_of, start, wait_for, write_config

from pettingllms.types import read_episodes

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("openskill")

NUM_STEPS = 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run that was left alone, and one that was killed in the middle and resumed."""
    from pettingllms.models import make_tiny

    root = tmp_path_factory.mktemp("league")
    texts = ["X\n123\n456\n789", "O\nX23\n4O6\n78X", "1", "5", "9"] * 20
    model = make_tiny(root / "tiny", texts=texts, hidden_size=64, vocab_size=320)
    config = {
        "seed": 5,
        "env": {"id": "tic_tac_toe-v1", "terse": True},
        "algo": {"type": "rae"},
        "policies": {"p": {"kind": "lora", "model": str(model), "rank": 4, "lr": 1e-3}},
        "rollout": {"num_tasks": 8, "num_samples": 2, "max_reply_tokens": 4},
        "inference": {"engine": "torch", "max_model_len": 64, "recording": str(root / "said")},
        "cluster": {"device": "cpu"},
        "train": {"num_steps": NUM_STEPS, "save_every": 2, "keep_checkpoints": 9},
        "league": {
            "snapshot_every": 1, "max_snapshots": 4, "num_opponents": 2, "anchors": ["minimax"],
        },
    }  # fmt: skip
    path = write_config(root / "config.toml", config)
    cli(root / "whole.txt", "train", path, "--out", root / "whole")
    killed = root / "killed"
    process = start(root / "killed.txt", "-m", "pettingllms", "train", str(path), "--out",
                    str(killed))  # fmt: skip
    try:
        metrics = killed / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 3, 300, "steps")
    finally:
        kill_all(process.pid)
        process.wait()
    cli(root / "killed.txt", "resume", killed)
    return root


def manifest(run: Path) -> Any:
    return json.loads((max((run / "checkpoints").glob("step-*")) / "manifest.json").read_text())


def test_a_league_that_was_killed_is_the_same_league(runs: Path) -> None:
    whole, killed = manifest(runs / "whole"), manifest(runs / "killed")
    assert whole["state"]["step"] == NUM_STEPS
    assert killed["state"]["components"]["league"] == whole["state"]["components"]["league"], (
        "pool, matrix, ratings, counts"
    )
    assert killed == whole, "and all weights, bit by bit"
    for step in range(1, NUM_STEPS + 1):
        name = f"episodes/step-{step:06d}-000.zip"
        assert (runs / "killed" / name).read_bytes() == (runs / "whole" / name).read_bytes()


def test_the_pool_is_thinned_and_all_of_it_is_in_the_checkpoint(runs: Path) -> None:
    found = manifest(runs / "whole")
    names = [f"p@{snapshot['step']}" for snapshot in found["state"]["components"]["league"]["pool"]]
    assert len(names) == 4
    assert {names[0], names[-1]} == {"p@0", f"p@{NUM_STEPS}"}
    saved = {name.split("/")[0] for name in found["files"]}
    assert saved == {"p", *names}
    weight_hashes = found["state"]["weight_hashes"]
    assert len({weight_hashes[name] for name in names}) == 4, "each has weights of its own"


def test_snapshots_were_met_and_measured(runs: Path) -> None:
    lines = metrics_of(runs / "whole")
    assert all("league/score_snapshots" in line for line in lines)
    assert [line["league/size"] for line in lines] == [2, 3, 4, 4, 4]
    met = {turn.policy for episode in read_episodes(runs / "whole") for turn in episode.turns}
    assert "script:minimax" in met
    assert len({name for name in met if "@" in name}) > 2


def test_runs_snapshots_and_scripts_meet_in_a_tournament(runs: Path) -> None:
    out = runs / "tournament"
    run = runs / "whole"
    players = [str(run), f"{run}@all", f"late={runs / 'killed'}@{NUM_STEPS}", "minimax", "random"]
    words = [word for player in players for word in ("--player", player)]
    said = cli(runs / "t.txt", "tournament", "tic_tac_toe-v1", "terse=true", *words, "--rounds",
               3, "--out", out)  # fmt: skip
    assert "minimax" in said
    data = json.loads((out / "results.json").read_text())
    names = [row["player"] for row in data["players"]]
    assert len(names) == 8
    assert names[0] == "minimax", "a model that knows nothing loses to it"
    assert data["num_games"] == 28 * 3 * 2
    assert all(row["unfinished"] == 0 for row in data["players"])
