"""`bench sampling`: LoRA kernels on a real vLLM engine, ours and vLLM's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import cli

pytestmark = pytest.mark.engine


def bench(log: Path, model: Path, *options: object) -> dict[str, Any]:
    printed = cli(log, "bench", "sampling", "--model", model, *options, "--json")
    print(printed[-2000:])
    found: dict[str, Any] = json.loads(
        next(line for line in printed.splitlines() if line.startswith("{"))
    )
    return found


@pytest.mark.parametrize("num_adapters", [1, 3])
def test_log_probs_equal_those_of_vllms_kernels(
    num_adapters: int, tiny: Path, tmp_path: Path
) -> None:
    options = ("--requests", 8, "--adapters", num_adapters, "--repeats", 1)
    found = bench(tmp_path / "log.txt", tiny, *options)
    assert found["equal_share"] == 1
    assert found["logprob_difference"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "difference"), [("float32", 1e-3), ("bfloat16", 1.0)])
def test_a_real_model_samples_faster_than_with_vllms_kernels(
    dtype: str, difference: float, smollm2: Path, tmp_path: Path
) -> None:
    found = bench(tmp_path / "log.txt", smollm2, "--dtype", dtype)
    assert found["ratio"] >= 1.4
    assert found["logprob_difference"] < difference
    # A rounding error changes which token is drawn in about one of 5,000 draws.
    assert found["equal_share"] >= 0.95 or dtype == "bfloat16"
