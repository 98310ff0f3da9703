"""Runs with VLMs through the CLI: engines, learners and critics in Ray's own processes."""

from pathlib import Path
from typing import Any

import pytest
from running import cli, metrics_of, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("PIL")

NUM_STEPS = 2
EVERYWHERE = ["language", "projector", "vision"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    from pettingllms.models import make_tiny_vision

    return str(make_tiny_vision(tmp_path_factory.mktemp("models") / "eyes", hidden_size=64))


def trained(folder: Path, policies: Any, **sections: Any) -> list[dict[str, Any]]:
    """What was measured in a run on boards with two rows."""
    names = list(policies)
    config = {
        "seed": 7,
        "env": {"id": "visual_relay-v1", "terse": True, "side": 2, "num_pieces": 2},
        "algo": {"type": "grpo"},
        "policies": policies,
        "roles": {"looker": names[0], "mover": names[-1]},
        "rollout": {"num_tasks": 4, "num_samples": 4, "max_reply_tokens": 6},
        "inference": {"engine": "torch", "max_model_len": 128},
        "cluster": {"device": "cpu"},
        "train": {"num_steps": NUM_STEPS},
        **sections,
    }
    path = write_config(folder / "config.toml", config)
    cli(folder / "log.txt", "train", path, "--out", folder / "run", seconds=900)
    return metrics_of(folder / "run")


def test_two_ranks_learn_what_the_engine_saw(model: str, tmp_path: Path) -> None:
    """An adapter for each role; each rank has a half of the replies, with its images."""
    lora = {"kind": "lora", "model": model, "rank": 4, "lr": 1e-2}
    policies = {"looker": {**lora, "parts": EVERYWHERE}, "mover": lora}
    # Random replies mostly get equal rewards; an entropy bonus moves every policy that spoke.
    lines = trained(tmp_path, policies, learner={"num_ranks": 2}, loss={"entropy_coef": 0.01})
    assert len(lines) == NUM_STEPS
    for line in lines:
        for policy in policies:
            assert line[f"policies/{policy}/mismatch"] < 1e-4
            assert line[f"policies/{policy}/canary_difference"] < 1e-4
            assert line[f"policies/{policy}/grad_norm"] > 0


def test_a_critic_of_the_team_sees_what_the_looker_saw(model: str, tmp_path: Path) -> None:
    policies = {"p": {"kind": "full", "model": model, "lr": 1e-3}}
    sections = {"algo": {"type": "mappo"}, "critic": {"kind": "model"}}
    lines = trained(tmp_path, policies, **sections)
    assert len(lines) == NUM_STEPS
    for line in lines:
        assert line["policies/p/mismatch"] < 1e-4
        losses = [value for key, value in line.items() if key.endswith("value_loss")]
        assert losses
        assert all(loss > 0 for loss in losses)
