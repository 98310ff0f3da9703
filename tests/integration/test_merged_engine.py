"""A run that samples with the only adapter of its base merged into it."""

import json
from pathlib import Path

import pytest
from running import cli, config_of, metrics_of, write_config

from pettingllms.models import make_tiny

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")


@pytest.mark.parametrize(
    "engine", ["torch", pytest.param("vllm", marks=pytest.mark.slow)]
)  # fmt: skip
def test_merged_weights_give_the_log_probs_of_the_adapter(engine: str, tmp_path: Path) -> None:
    """The canary compares the engine's merged weights with the learner's adapter."""
    model = make_tiny(tmp_path / "tiny", texts=["one two three 1 2 3"] * 4, hidden_size=64)
    config = config_of(
        {"p": {"kind": "lora", "model": str(model), "rank": 4, "lr": 1e-2}},
        {"role0": "p"},
        inference={"engine": engine, "merge_single_adapter": True},
        learner={"num_ranks": 2},
        cluster={"device": "cpu"},
        train={"num_steps": 2, "save_every": 1},
    )
    out = tmp_path / "run"
    cli(tmp_path / "log.txt", "train", write_config(tmp_path / "c.toml", config), "--out", out)
    for line in metrics_of(out):
        assert line["policies/p/canary_difference"] < 1e-4
        assert line["policies/p/mismatch"] < 1e-4
        assert line["policies/p/grad_norm"] > 0
    manifest = json.loads((out / "checkpoints/step-000002/manifest.json").read_text())
    assert any("adapter_model." in name for name in map(str, manifest["files"]))
    cli(tmp_path / "eval.txt", "eval", out)  # an adapter beside its base, in another engine
