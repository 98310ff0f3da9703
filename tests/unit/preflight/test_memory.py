"""GPU and memory estimates, against numbers computed by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from pettingllms.config import RunConfig, parse_config
from pettingllms.policies import num_gpus_needed, plan_models
from pettingllms.preflight.memory import (
    ModelSize,
    check_gpu_memory,
    estimate_memory,
    read_size,
)

SIZE = ModelSize(
    1_000_000, adapted=((100, 50), (50, 200)), num_layers=2, num_kv_heads=3, head_dim=4
)
KV_TOKEN = 2 * 2 * 3 * 4
"""Keys and values of one token: 2 * layers * heads * head_dim."""


def config_of(kind: str = "full", **sections: Any) -> RunConfig:
    policy = {"kind": kind, "model": "m", **({"rank": 8} if kind == "lora" else {})}
    data = {
        "env": {"id": "tic_tac_toe-v1"},
        "algo": {"type": "grpo"},
        "policies": {"x": policy, "o": policy},
        "roles": {"player_x": "x", "player_o": "o"},
        "inference": {"max_num_seqs": 10, "max_model_len": 100},
    }
    return parse_config({**data, **sections})


def parts_of(config: RunConfig, sizes: ModelSize = SIZE) -> dict[str, dict[str, float]]:
    found = estimate_memory(config, plan_models(config), {"m": sizes})
    return {one.name: {part.name: part.num_bytes for part in one.parts} for one in found}


def test_full_policies_have_an_engine_and_a_learner_each() -> None:
    config = config_of()
    found = parts_of(config)
    assert found.keys() == {
        f"{part} of '{name}'" for part in ("engine", "learner") for name in ("x", "o")
    }
    assert found["engine of 'x'"] == {"weights": 2e6, "KV cache": 10 * 100 * KV_TOKEN * 2}
    assert found["learner of 'x'"] == {
        "weights": 4e6,
        "gradients": 4e6,
        "optimizer state": 8e6,
    }
    assert num_gpus_needed(config, plan_models(config)) == 4


def test_adapters_share_a_base_and_train_rank_times_rows_plus_columns() -> None:
    config = config_of("lora")
    num_adapted = 2 * 8 * (150 + 250)  # two policies, rank 8
    found = parts_of(config)
    assert found["learner of 'x', 'o'"] == {
        "frozen base": 4e6,
        "adapter weights": num_adapted * 4,
        "adapter gradients": num_adapted * 4,
        "adapter optimizer state": num_adapted * 8,
    }
    assert found["engine of 'x', 'o'"]["adapters"] == num_adapted * 2
    assert num_gpus_needed(config, plan_models(config)) == 2


def test_tensor_parallel_ranks_and_dtype_divide_memory_per_gpu() -> None:
    inference = {"tensor_parallel": 2, "num_replicas": 3, "dtype": "bfloat16", "max_num_seqs": 1}
    config = config_of(inference=inference, learner={"num_ranks": 4}, loss={"kl_coef": 0.1})
    found = parts_of(config)
    assert found["engine of 'x'"]["weights"] == 2e6 / 2
    assert found["engine of 'x'"]["KV cache"] == 2048 * KV_TOKEN * 2 / 2
    assert found["learner of 'x'"]["optimizer state"] == 8e6 / 4
    assert found["learner of 'x'"]["reference model"] == 2e6 / 4
    assert num_gpus_needed(config, plan_models(config)) == 2 * 3 * 2 + 2 * 4


def test_a_critic_model_is_trained_in_full() -> None:
    found = parts_of(config_of("lora", algo={"type": "mappo"}))
    assert sum(found["'critic:team'"].values()) == 16e6


def test_an_estimate_shows_its_formulas_and_a_small_gpu_is_a_problem() -> None:
    big = ModelSize(8_000_000_000, num_layers=32, num_kv_heads=8, head_dim=128)
    config = config_of(inference={"dtype": "bfloat16", "max_num_seqs": 64})
    findings = list(check_gpu_memory(config, plan_models(config), {"m": big}, ["A, 81920 MiB"]))
    assert findings[0].what.startswith("GPUs (estimate): 4 needed")
    engine = findings[1]
    assert engine.level == "ok"
    assert "weights 14.9 GiB = 8.0B parameters * 2 B" in engine.what
    assert "KV cache 16.0 GiB = 64 sequences * 2048 tokens * 2 * 32 layers" in engine.what
    assert "about 30.9 GiB per GPU" in engine.what
    (problem, _) = [finding for finding in findings if finding.level == "problem"]
    assert "learner of 'x': about 119.2 GiB per GPU" in problem.what
    assert problem.what.endswith("the GPU has 80.0 GiB")
    assert "learner.num_ranks" in problem.advice


def test_a_colocated_run_adds_engine_and_learner_on_one_gpu() -> None:
    sections = {"policies": {"p": {"kind": "full", "model": "m"}}, "roles": {}}
    config = config_of(cluster={"placement": "colocated"}, **sections)
    gpus, memory = check_gpu_memory(config, plan_models(config), {"m": SIZE}, [])
    assert "1 needed" in gpus.what
    assert "engine and learner: about 17 MiB" in memory.what


@pytest.mark.parametrize("nested", [True, False])
def test_dimensions_are_read_from_the_folder(tmp_path: Path, nested: bool) -> None:
    text = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
            "hidden_size": 64}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text} if nested else text))
    shapes = {"model.embed_tokens.weight": [10, 64], "q_proj.weight": [64, 32], "norm": [64]}
    head = json.dumps(
        {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    )
    content = len(head).to_bytes(8, "little") + head.encode()
    (tmp_path / "model.safetensors").write_bytes(content)
    expected = ModelSize(640 + 2048 + 64, ((64, 32),), num_layers=2, num_kv_heads=4, head_dim=8)
    assert read_size(tmp_path) == expected
