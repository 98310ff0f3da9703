"""Rollout workers under real Ray: the same episodes by any number, and nothing lost with a worker
or an engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import HERE, cli, config_of, metrics_of, run, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")

from pettingllms.types import episode_line, read_episodes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pettingllms.models import make_tiny

    return make_tiny(tmp_path_factory.mktemp("models") / "tiny", vocab_size=400)


def drive(folder: Path, model: Path, scenario: str) -> Any:
    result = folder / "result.json"
    script = str(HERE / "drive_workers.py")
    print(run(folder / "log.txt", script, scenario, str(model), str(result))[-2000:])
    return json.loads(result.read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Any:
    """What one team with four workers did."""
    return drive(tmp_path_factory.mktemp("whole"), model, "whole")


def test_any_number_of_workers_plays_the_same_episodes(whole: Any) -> None:
    driver = whole["0 workers"]
    for number in "124":
        found = whole[f"{number} workers"]
        for kind in ("linear", "tree", "replay", "test"):
            assert len(set(driver[kind])) >= 6
            assert found[kind] == driver[kind], (kind, number)


def test_metrics_without_content_are_the_same(whole: Any) -> None:
    metrics = whole["0 workers"]["metrics"]
    assert "repetition" in metrics["policies"]["shared"]
    assert all(whole[f"{number} workers"]["metrics"] == metrics for number in "124")


def test_workers_share_the_slots_of_engines(whole: Any) -> None:
    for number in "0124":
        assert all(5 <= most <= 8 for most in whole[f"{number} workers"]["most"])


def test_killed_workers_and_engines_lose_nothing(whole: Any) -> None:
    assert whole["worker"]
    assert whole["said"].count("a rollout worker died; restarting it") == 1
    assert whole["engine"]
    assert whole["restarts"] == [1, 0]
    assert any("no request was lost" in text for text in whole["said"])


def test_stopped_sampling_stops_engines_too(whole: Any) -> None:
    assert (whole["stopped"], whole["in_flight"]) == ("CancelledError", [0, 0])
    assert whole["again"]


def test_engines_that_keep_dying_end_the_run(whole: Any) -> None:
    assert whole["problem"].startswith("ClusterError: the engine for ")
    assert "died 2 times, more than cluster.max_restarts = 1 allows" in whole["problem"]


def test_any_number_of_workers_runs_the_same_programs(tmp_path: Path, model: Path) -> None:
    """Async, blocking and separate programs, through a worker's own gateway or one address."""
    found = drive(tmp_path, model, "programs")
    for name in ("Talk", "Blocking", "Commanded"):
        first, *others = found[name]
        assert len(set(first)) >= 8, name
        assert len(others) == (5 if name == "Talk" else 1)
        assert all(other == first for other in others), name
    assert found["killed"], "programs of a dead worker run again, with the same result"
    assert found["said"].count("a rollout worker died; restarting it") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "critic"), [("ppo", "head"), ("mappo", "model")])
def test_training_is_the_same_from_references(
    tmp_path: Path, model: Path, algo: str, critic: str
) -> None:
    """Ranks load prompts and replies from the object store; workers write the episodes. With one
    request at a time, replies do not depend on what else the engine decodes."""
    runs = {}
    for workers in (0, 2):
        config = config_of(
            {"p": {"kind": "full", "model": str(model), "lr": 1e-3}},
            {"role0": "p", "role1": "p"},
            algo={"type": algo},
            critic={"kind": critic},
            rollout={"num_workers": workers},
            inference={"engine": "torch", "max_num_seqs": 1},
            learner={"num_ranks": 2 if algo == "ppo" else 1},
            train={"num_steps": 2, "save_every": 100},
            cluster={"device": "cpu"},
        )
        path = write_config(tmp_path / f"{workers}.toml", config)
        folder = tmp_path / f"run{workers}"
        cli(tmp_path / f"log{workers}.txt", "train", path, "--out", folder)
        lines = [episode_line(episode) for episode in read_episodes(folder)]
        runs[workers] = metrics_of(folder), lines
    assert len(runs[0][1]) == 12
    assert runs[2] == runs[0]


@pytest.mark.slow
def test_other_environments_play_the_same(tmp_path: Path, model: Path) -> None:
    found = drive(tmp_path, model, "environments")
    for name, episodes in found.items():
        assert len(set(episodes["0"])) >= 12, name
        assert episodes["2"] == episodes["0"], name


@pytest.mark.slow
def test_ten_thousand_episodes_are_in_flight_over_four_workers(tmp_path: Path, model: Path) -> None:
    found = drive(tmp_path, model, "many")
    assert found["episodes"] == 10_000
    assert found["most"] == 10_000
