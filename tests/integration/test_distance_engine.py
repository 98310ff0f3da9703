"""Distance from perfect play of a real model: read by the small engine, before and after a step."""

import json
from pathlib import Path

import numpy as np
import pytest
from drive_temperature import PROMPT, REPLIES, TEMPERATURES
from running import HERE, metrics_of, run, write_config

pytestmark = pytest.mark.engine

pytest.importorskip("ray")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a configuration, and what `drive_distance.py` found with them."""
    from pettingllms.envs import make_env
    from pettingllms.models import make_tiny
    from pettingllms.models.tiny import texts_of

    root = tmp_path_factory.mktemp("distance")
    texts = texts_of([make_env("kuhn_poker-v1", terse=True)], num_tasks=50)
    model = make_tiny(root / "tiny", texts=texts, hidden_size=64, vocab_size=320)
    write_config(
        root / "run.toml",
        {
            "env": {"id": "kuhn_poker-v1", "terse": True},
            "algo": {"type": "rae"},
            "policies": {"p": {"kind": "full", "model": str(model), "lr": 1e-3}},
            "rollout": {"num_tasks": 8, "num_samples": 2, "max_reply_tokens": 4},
            "train": {"num_steps": 2, "eval_every": 1},
            "eval": {"num_tasks": 4, "exploitability": True},
            "inference": {"engine": "torch"},
            "cluster": {"device": "cpu"},
        },
    )
    run(root / "log.txt", str(HERE / "drive_distance.py"), str(root), seconds=600)
    return root


def test_it_is_a_metric_of_every_evaluation(root: Path) -> None:
    lines = metrics_of(root / "run")
    found = [line["policies/p/nash_conv"] for line in lines]
    assert len(found) == 2
    assert all(0 < number < 4 for number in found)
    assert all(0 < line["policies/p/legal_share"] <= 1 for line in lines)
    assert found[0] != found[1]


def test_a_run_that_is_over_has_the_distance_of_its_last_step(root: Path) -> None:
    lines = metrics_of(root / "run")
    result = json.loads((root / "result.json").read_text())
    assert result["p"]["nash_conv"] == pytest.approx(lines[-1]["policies/p/nash_conv"], abs=1e-5)


def test_vllm_scores_replies_at_a_temperature_as_transformers_does(root: Path) -> None:
    """At temperature 0 a log-prob is relative to that of the likeliest token."""
    import torch
    from transformers import AutoModelForCausalLM

    pytest.importorskip("vllm")
    run(root / "vllm.txt", str(HERE / "drive_temperature.py"), str(root), seconds=600)
    found = json.loads((root / "scored.json").read_text())
    lm = AutoModelForCausalLM.from_pretrained(root / "tiny", dtype=torch.float32)
    for temperature in TEMPERATURES:
        for at, reply in enumerate(REPLIES):
            ids = torch.tensor([*PROMPT.tolist(), *reply])
            with torch.no_grad():
                logits = lm(ids[None]).logits[0, len(PROMPT) - 1 : -1].double()
            logp = torch.log_softmax(logits / (temperature or 1.0), -1)
            expected = logp.gather(1, ids[len(PROMPT) :, None])[:, 0]
            if temperature == 0:
                expected -= logp.amax(-1)
            np.testing.assert_allclose(found[str(temperature)][at], expected, atol=1e-3)
