"""Every reasoning, code and tool environment trains two real steps, as its three files say.

The shipped configuration is what is run, made small: the levels differ by that alone. A policy
whose replies were all paid alike has nothing to learn from, and SmolLM2 is often wrong in one way
only. So what must have moved is read off the episodes: exactly the policies that have an advantage
in a step change in that step, in the learner and in the sampler, and all others keep every bit.
"""

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import drive, metrics_of

from pettingllms.types import read_episodes

pytestmark = pytest.mark.engine
CONFIGS = Path(__file__).parents[2] / "configs"
ENVIRONMENTS = ("math", "debate", "code", "sql", "search", "verilog")
LEVELS = {"L1": "team", "L2": "adapters", "L3": "models"}
IN_CI = {("math", "L2")}
CASES = [
    pytest.param(env, level, marks=() if (env, level) in IN_CI else pytest.mark.slow)
    for level in LEVELS
    for env in ENVIRONMENTS
]
SMALL: dict[str, dict[str, Any]] = {
    "rollout": {"num_tasks": 2, "num_samples": 4, "max_reply_tokens": 48},
    "inference": {"max_model_tokens": 1280, "max_num_seqs": 16},
    "learner": {"skip_zero": True, "max_batch_tokens": 4096},
    "train": {"num_steps": 2, "save_every": 2},
}
RATES = {"full": 1e-4, "lora": 1e-3}


def small(env: str, level: str, model: Path) -> dict[str, Any]:
    """A shipped configuration with a model that is here, few tasks and short replies."""
    config = tomllib.loads((CONFIGS / f"{env}_{LEVELS[level]}.toml").read_text())
    for policy in config["policies"].values():
        policy |= {"model": str(model), "lr": RATES[policy["kind"]]}
    for section, values in SMALL.items():
        config[section] = {**config.get(section, {}), **values}
    return {**config, "seed": 7}


def taught(run_folder: Path, step: int) -> set[str]:
    """Policies that a step's episodes have something to say to."""
    episodes = read_episodes(run_folder / "episodes" / f"step-{step:06d}.jsonl")
    return {turn.policy for episode in episodes for turn in episode.turns if turn.advantage}


@pytest.mark.parametrize(("env", "level"), CASES)
def test_two_real_steps(env: str, level: str, smollm2: Path, tmp_path: Path) -> None:
    config = small(env, level, smollm2)
    found, run_folder = drive(tmp_path, "levels", config), tmp_path / "run"
    metrics = metrics_of(run_folder)
    assert len(metrics) == 2
    assert len(found["history"]) == 3
    assert set(found["history"][0]) == set(config["policies"])
    learnt = [taught(run_folder, step) for step in (1, 2)]
    print({"case": (env, level), "taught": learnt})
    for (before, after), moving in zip(pairwise(found["history"]), learnt, strict=True):
        for side in ("learner", "sampler"):
            changed = {p for p in after if after[p][side] != before[p][side]}
            assert changed == moving, f"{side}: {changed} changed, {moving} should have"
    for line in metrics:
        assert line["rollout/failed_episodes"] == 0
        assert not {key: n for key, n in line.items() if key.endswith("/failed_share") and n}
    assert set.union(*learnt), "two steps without one advantage show nothing"
