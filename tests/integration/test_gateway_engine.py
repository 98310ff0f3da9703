"""Programs of real packages, on real engines: their roles learn, and nothing else changes."""

from pathlib import Path

import pytest
from running import drive

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {
    "openai": ("agents_openai.py:Sums", ("planner", "worker")),
    "langgraph": ("agents_langgraph.py:LangGraphSums", ("planner", "worker")),
}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("package", PROGRAMS)
def test_two_steps_change_the_adapters_of_both_roles(
    package: str, smollm2: Path, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    program, roles = PROGRAMS[package]
    config = {
        "seed": 3,
        "env": {"id": str(EXAMPLES / program)},
        "algo": {"type": "dr_mas"},
        "policies": {role: {"kind": "lora", "model": str(smollm2)} for role in roles},
        "roles": {role: role for role in roles},
        "rollout": {"num_tasks": 2, "num_samples": 2, "max_reply_tokens": 16},
        "inference": {"max_model_tokens": 512, "max_num_seqs": 16},
        "train": {"num_steps": 2, "save_every": 2},
    }
    found = drive(tmp_path, "levels", config)
    first, *steps = found["history"]
    assert len(steps) == 2
    assert set(first) == set(roles)
    before = first
    for after in steps:
        for role in roles:
            assert after[role]["learner"] != before[role]["learner"], role
            assert after[role]["sampler"] != before[role]["sampler"], role
        before = after
