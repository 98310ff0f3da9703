"""`bench adapters`: several LoRA policies against one, with real engines and learners."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import cli

pytestmark = pytest.mark.engine


def bench(log: Path, model: Path, *options: object) -> dict[str, Any]:
    printed = cli(log, "bench", "adapters", "--model", model, *options, "--json")
    print(printed[-2000:])
    found: dict[str, Any] = json.loads(
        next(line for line in printed.splitlines() if line.startswith("{"))
    )
    return found


def test_both_sides_sample_learn_and_publish(tiny: Path, tmp_path: Path) -> None:
    found = bench(tmp_path / "log.txt", tiny, "--policies", 3, "--repeats", 1)
    one, several = found["num_tokens"]
    assert 0.5 < one / several < 2
    for side in (found["one"], found["several"]):
        assert side["step"] == pytest.approx(
            side["sampling"] + side["learning"] + side["publishing"], abs=0.05
        )
        assert min(side.values()) > 0


@pytest.mark.slow
def test_eight_policies_of_a_real_model_cost_little_more_than_one(
    smollm2: Path, tmp_path: Path
) -> None:
    found = bench(tmp_path / "log.txt", smollm2)
    assert found["ratio"]["step"] <= 1.1, found["ratios"]
