"""Every configuration that ships loads, resolves, and rolls out."""

import tomllib
from pathlib import Path

import pytest

from pettingllms.config import load_config, parse_config
from pettingllms.registry import ALGORITHMS, ENVIRONMENTS
from pettingllms.runs.folder import CONFIG_FILE
from pettingllms.training.collect import EPISODES_FILE, collect
from pettingllms.types import read_episodes

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_loads_and_rolls_out(path: Path, tmp_path: Path) -> None:
    config = load_config(path, ["rollout.num_tasks=3"])
    summary = collect(config, tmp_path)
    assert summary.num_failed_turns == 0
    assert summary.num_failed_episodes == 0
    assert summary.num_trained_turns > 0
    episodes = list(read_episodes(tmp_path / EPISODES_FILE))
    assert len(episodes) == summary.num_episodes
    silent = set(config.judge.policies() if config.judge else ())
    assert {turn.policy for e in episodes for turn in e.turns} == set(config.policies) - silent
    written = tomllib.loads((tmp_path / CONFIG_FILE).read_text())
    assert parse_config(written) == config


def test_they_cover_every_environment_algorithm_and_level() -> None:
    configs = [load_config(path) for path in CONFIGS]
    assert {config.env.id for config in configs} == set(ENVIRONMENTS.names())
    assert {config.algo.type for config in configs} == set(ALGORITHMS.names())
    assert {policy.kind for c in configs for policy in c.policies.values()} >= {
        "full",
        "lora",
        "scripted",
    }
    assert {len(config.roles) > 1 for config in configs} == {True, False}
