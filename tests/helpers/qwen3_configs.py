"""The config.json of several sizes of Qwen3, without weights."""

import json
from pathlib import Path
from typing import Any

QWEN3 = {
    "1.7B": (2048, 28, 16, 6144, True),
    "8B": (4096, 36, 32, 12288, False),
    "32B": (5120, 64, 64, 25600, False),
}
"""Hidden size, layers, heads, MLP size, and whether the output layer is the embedding."""


def qwen3(name: str, **changed: Any) -> dict[str, Any]:
    """The config.json of a size of Qwen3."""
    hidden, layers, heads, mlp, tied = QWEN3[name]
    return {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": mlp,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": tied,
        **changed,
    }


def write_config(folder: Path, name: str) -> Path:
    """A model folder with nothing but a config.json."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(qwen3(name)))
    return folder
