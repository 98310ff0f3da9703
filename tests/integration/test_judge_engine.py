"""A frozen model of the run judges through the run's own sampler, in the loop as it is."""

import json
import os
from pathlib import Path

import pytest
from running import run

pytestmark = [pytest.mark.engine, pytest.mark.slow]
CONFIG = """
[env]
id = "story-v1"
terse = true # a reply is the sentence itself, which is all that a small model can keep to
num_rounds = 1

[algo]
type = "grpo"

[policies.shared]
kind = "lora"
model = "{model}"

[policies.reader]
kind = "frozen"
model = "{model}"

[roles]
writer_1 = "shared"
writer_2 = "shared"

[judge]
by = "reader"
against = "group"
held_out = "rule"

[judge.judges.reader]
kind = "llm"
policy = "reader"
verdict = "read"
max_letters = 300

[rollout]
num_tasks = 2
num_samples = 3
max_reply_tokens = 24

[inference]
engine = "torch"
max_model_len = 1024

[train]
num_steps = 1
"""


def test_smollm2_judges_the_stories_that_its_adapter_writes(tmp_path: Path) -> None:
    model = os.environ.get("PETTINGLLMS_TEST_MODEL")
    if not model:
        pytest.skip("set PETTINGLLMS_TEST_MODEL")
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(model=model))
    run(
        tmp_path / "log.txt",
        *("-m", "pettingllms", "train", str(config), "--out", str(tmp_path / "run")),
    )
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert found["judge/failed_share"] == 0
    assert found["judge/num_verdicts"] == 6
    assert 0 < found["judge/reader_first_place_share"] < 1
    assert found["policies/shared/version"] == 1
