"""Asynchronous training on real vLLM engines: requests outlive publications, and every token has
the log-prob of the weights that sampled it."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import cli, config_of, metrics_of, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("torch")

from pettingllms.cluster.placement import learner_spec
from pettingllms.config import RunConfig
from pettingllms.learners.batches import Item
from pettingllms.learners.learner import Learner
from pettingllms.policies import plan_models
from pettingllms.runs.checkpoint import checkpoint_name, open_checkpoint
from pettingllms.runs.folder import RunFolder
from pettingllms.types import Turn, read_episodes

MAX_STALENESS = 2
NUM_STEPS = 5


def kinds(model: Path) -> dict[str, dict[str, Any]]:
    """Large rates, so that versions differ by more than the two sides' arithmetic."""
    return {
        "lora": {"kind": "lora", "model": str(model), "rank": 8, "lr": 3e-2},
        "full": {"kind": "full", "model": str(model), "lr": 3e-3},
    }


@pytest.mark.parametrize(
    ("kind", "num_workers", "in_flight"),
    [("lora", 2, True), ("full", 2, True), ("full", 0, False)],
    ids=["lora", "full, in flight", "full, replies end first"],
)
def test_every_token_has_the_log_prob_of_its_version(
    kind: str, num_workers: int, in_flight: bool, tiny: Path, tmp_path: Path
) -> None:
    policy = kinds(tiny)[kind]
    updates = {} if in_flight else {"in_flight_updates": False}
    config = config_of(
        {"a": policy, "b": policy},
        {"role0": "a", "role1": "b"},
        rollout={
            "max_staleness": MAX_STALENESS,
            "num_tasks": 4,
            "max_reply_tokens": 40,
            "num_workers": num_workers,
        },
        inference={"max_num_seqs": 8, "dtype": "float32", **updates},
        learner={"dtype": "float32"},
        train={"num_steps": NUM_STEPS},
        guard={"action": "off"},
        cluster={"device": "cpu"},
    )
    run = tmp_path / "run"
    cli(tmp_path / "log.txt", "train", write_config(tmp_path / "c.toml", config), "--out", run)
    turns = [(step, turn) for step in range(1, NUM_STEPS + 1) for turn in turns_of(run, step)]
    ages = Counter(step - 1 - one.version for step, turn in turns for one in turn.version_runs)
    assert set(ages) <= set(range(MAX_STALENESS + 1))
    assert ages[1] or ages[2], "learners and engines worked at the same time"
    lines = metrics_of(run)
    assert max(line["staleness/max"] for line in lines) <= MAX_STALENESS
    assert max(line.get(f"policies/{p}/drift", 0) for line in lines for p in "ab") > 1e-3
    mixed = [turn for _, turn in turns if turn.later_versions]
    assert bool(mixed) == (kind == "full" and in_flight)
    check_log_probs(RunFolder(run).config(), run, [turn for _, turn in turns])


def turns_of(run: Path, step: int) -> list[Turn]:
    """The turns of a step."""
    episodes = read_episodes(run / f"episodes/step-{step:06d}")
    return [turn for episode in episodes for turn in episode.turns]


def check_log_probs(config: RunConfig, run: Path, turns: list[Turn]) -> None:
    """Compare what samplers recorded with a learner that has the weights of each version. Every
    step publishes both policies, so version n is in the checkpoint of step n."""
    compared, told_apart = 0, 0
    for group in plan_models(config):
        learner = Learner(learner_spec(config, group, Path(group.model), "cpu"))
        for version in range(NUM_STEPS):
            if version:
                _, saved = open_checkpoint(run / "checkpoints" / checkpoint_name(version))
                for policy in group.trained:
                    learner.load(policy, saved[policy])
            for policy in group.trained:
                own, later = gaps(learner, policy, turns, version)
                assert max(own, default=0) < 1e-4
                compared += len(own)
                told_apart += max(later, default=0) > 1e-3
    assert compared == sum(turn.num_tokens for turn in turns), "every token was compared"
    assert told_apart, "the test could not tell versions apart"


def gaps(
    learner: Learner, policy: str, turns: list[Turn], version: int
) -> tuple[list[float], list[float]]:
    """The differences between recorded and recomputed log-probs, on tokens that a version sampled,
    and on tokens that later ones did. The learner reads the tokens before with the same weights."""
    some = [turn for turn in turns if turn.policy == policy]
    items = [Item(t.prompt_ids, t.response_ids, t.logprobs, 0.0) for t in some]  # type: ignore[arg-type]
    own, later = [], []
    for turn, item, found in zip(some, items, learner.logprobs(policy, items), strict=True):
        sampled_by = np.repeat(*np.array(turn.version_runs).T)
        differences = np.abs(found - item.logprobs)
        own += differences[sampled_by == version].tolist()
        later += differences[sampled_by > version].tolist()
    return own, later
