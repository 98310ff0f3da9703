"""`bench engine`: what is left of vLLM's and PyTorch's own speed."""

import json
import math
import os
from pathlib import Path

import pytest
from running import cli

pytestmark = pytest.mark.engine


def bench(log: Path, model: Path, requests: int, repeats: int) -> dict:
    said = cli(
        log, "bench", "engine", "--model", model, "--requests", requests, "--repeats", repeats,
        "--json",
    )  # fmt: skip
    print(said[-2000:])
    return json.loads(said.splitlines()[-1])


@pytest.mark.slow
def test_both_ratios_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from pettingllms.models import make_tiny

    found = bench(tmp_path / "log.txt", make_tiny(tmp_path / "tiny"), requests=4, repeats=1)
    for name in ("rollout_ratio", "learner_ratio"):
        assert math.isfinite(found[name])
        assert found[name] > 0


@pytest.mark.slow
@pytest.mark.skipif(
    "PETTINGLLMS_TEST_MODEL" not in os.environ, reason="PETTINGLLMS_TEST_MODEL names no model"
)
def test_nine_tenths_are_left_with_a_real_model(tmp_path: Path) -> None:
    """A busy machine may spoil one measurement, so the best of three counts."""
    model = Path(os.environ["PETTINGLLMS_TEST_MODEL"])
    results = []
    for number in range(3):
        results.append(bench(tmp_path / f"log{number}.txt", model, requests=16, repeats=3))
        if min(results[-1]["rollout_ratio"], results[-1]["learner_ratio"]) >= 0.9:
            break
    assert max(result["rollout_ratio"] for result in results) >= 0.9, results
    assert max(result["learner_ratio"] for result in results) >= 0.9, results
