"""Every reasoning, code and tool environment trains two real steps, as its three files say.

The test runs the shipped configuration in a small form: the levels differ by that alone. SmolLM2 is
often wrong in one way only, and siblings with equal rewards have an advantage of zero. So the test
adds an entropy bonus, which moves every policy that spoke, whatever its reward. Exactly those
policies that have replies to learn from change in a step, in the learner and in the sampler; all
others keep every bit. Which of them had nonzero advantages is printed, not asserted.
"""

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running import drive, metrics_of

from pettingllms.types import read_episodes

pytestmark = [pytest.mark.engine, pytest.mark.slow]
CONFIGS = Path(__file__).parents[2] / "configs"
ENVIRONMENTS = ("math", "debate", "code", "sql", "search", "verilog")
LEVELS = {"L1": "team", "L2": "adapters", "L3": "models"}
SMALL: dict[str, dict[str, Any]] = {
    "rollout": {"num_tasks": 1, "num_samples": 3, "max_reply_tokens": 32, "env_timeout": 120},
    "inference": {"max_model_len": 1280, "max_num_seqs": 16},
    "learner": {"max_batch_tokens": 2048},
    "loss": {"entropy_coef": 0.01},
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


def learning(run_folder: Path, step: int) -> dict[str, bool]:
    """Policies with replies to learn from in a step, and whether any advantage is nonzero."""
    found: dict[str, bool] = {}
    for episode in read_episodes(run_folder / "episodes" / f"step-{step:06d}"):
        for turn in episode.turns:
            if turn.credit.advantage is not None and turn.num_tokens:
                found[turn.policy] = found.get(turn.policy, False) or bool(turn.credit.advantage)
    return found


@pytest.mark.parametrize("env", ENVIRONMENTS)
@pytest.mark.parametrize("level", LEVELS)
def test_two_real_steps(env: str, level: str, smollm2: Path, tmp_path: Path) -> None:
    config = small(env, level, smollm2)
    found, run_folder = drive(tmp_path, "levels", config), tmp_path / "run"
    metrics = metrics_of(run_folder)
    assert len(metrics) == 2
    assert len(found["history"]) == 3
    assert set(found["history"][0]) == set(config["policies"])
    learned = [learning(run_folder, step) for step in (1, 2)]
    print({"case": (env, level), "nonzero advantage": learned})
    for (before, after), moving in zip(pairwise(found["history"]), learned, strict=True):
        for side in ("learner", "sampler"):
            changed = {p for p in after if after[p][side] != before[p][side]}
            assert changed == set(moving), f"{side}: {changed} changed, {set(moving)} should have"
    assert set().union(*learned) == set(config["policies"])
    for line in metrics:
        assert line["rollout/failed_episodes"] == 0
        assert not {key: n for key, n in line.items() if key.endswith("/failed_share") and n}
