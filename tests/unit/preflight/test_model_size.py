"""Sizes of models from a config.json, with and without weight files."""

import json
from pathlib import Path
from typing import Any

import pytest
from qwen3_configs import qwen3, write_config

from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import ModelError
from pettingllms.preflight.model_size import read_size, size_of


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [("1.7B", 1_720_574_976), ("8B", 8_190_735_360), ("32B", 32_762_123_264)],
)
def test_parameters_of_qwen3_are_counted_from_its_config(
    tmp_path: Path, name: str, num_parameters: int
) -> None:
    size = read_size(write_config(tmp_path / "model", name))
    assert size.num_parameters == num_parameters
    tied = name == "1.7B"
    embeddings = 151936 * size.hidden_size * (1 if tied else 2)
    assert size.root_parameters == embeddings + size.hidden_size
    assert (size.is_tied, size.has_qk_norm, size.missing) == (tied, True, [])
    matrices = [rows + columns for _, rows, columns in size.adapted]
    assert len(matrices) == 7 * size.num_layers
    assert size.adapter_parameters(LoraPolicy(model="m", rank=3)) == 3 * sum(matrices)
    few = LoraPolicy(model="m", rank=1, target_modules=["q_proj", "self_attn.v_proj"])
    hidden, queries, keys = size.hidden_size, size.num_heads * 128, 8 * 128
    assert size.adapter_parameters(few) == size.num_layers * (2 * hidden + queries + keys)


def test_counted_parameters_and_adapted_matrices_are_those_of_the_files(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from pettingllms.models.tiny import make_tiny

    for architecture in ("qwen3", "llama"):
        folder = make_tiny(tmp_path / architecture, architecture)
        counted = size_of(json.loads((folder / "config.json").read_text()))
        read = read_size(folder)
        assert counted.num_parameters == read.num_parameters
        policies = [LoraPolicy(model="m"), LoraPolicy(model="m", target_modules=["down_proj"])]
        for policy in policies:
            assert counted.adapter_parameters(policy) == read.adapter_parameters(policy)
        assert counted.has_qk_norm == read.has_qk_norm == (architecture == "qwen3")


@pytest.mark.parametrize("nested", [True, False])
def test_files_are_counted_if_there_are_any(tmp_path: Path, nested: bool) -> None:
    text = {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
            "hidden_size": 64}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text} if nested else text))
    shapes = {"model.embed_tokens.weight": [10, 64], "q_proj.weight": [64, 32], "norm": [64]}
    head = json.dumps(
        {n: {"dtype": "F32", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    )
    content = len(head).to_bytes(8, "little") + head.encode()
    (tmp_path / "model.safetensors").write_bytes(content)
    size = read_size(tmp_path)
    assert size.num_parameters == 640 + 2048 + 64
    assert size.adapted == (("q_proj", 64, 32),)
    assert (size.num_layers, size.num_kv_heads, size.head_dim) == (2, 4, 8)
    assert size.missing == ["intermediate_size", "vocab_size"]


def test_a_config_without_dimensions_and_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    with pytest.raises(ModelError, match=r"lacks num_hidden_layers, intermediate_size.*models get"):
        read_size(tmp_path)


def test_experts_count_in_parameters_and_only_active_ones_in_activations() -> None:
    # Qwen3-30B-A3B
    config: dict[str, Any] = qwen3("8B", model_type="qwen3_moe", hidden_size=2048,
                                   num_hidden_layers=48, num_key_value_heads=4)  # fmt: skip
    config |= {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
    size = size_of(config)
    assert size.num_parameters == 30_532_122_624
    assert size.mlp_size == 8 * 768
