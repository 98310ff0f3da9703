"""The dimensions of a model that memory depends on.

A config.json alone is enough. If the folder also has weight files, their headers give the exact
number of parameters, and the matrices that LoRA adapts.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pettingllms.config.policies import LoraPolicy
from pettingllms.errors import ModelError
from pettingllms.models.folder import tensor_shapes
from pettingllms.vision.families import object_in

NOT_ADAPTED = re.compile(r"embed|lm_head|norm")
"""Tensors that LoRA leaves alone."""
VISION = re.compile(r"visual|vision")
"""Tensors of a vision encoder."""
QK_NORM = re.compile(r"qwen3|gemma3|olmo2|olmo3")
"""Model types whose attention normalizes queries and keys."""
NEEDED = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "mlp_size",
    "num_attention_heads": "num_heads",
    "vocab_size": "vocab_size",
}
"""Keys of config.json that a plan cannot do without, and the dimensions that they give."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Parameters and dimensions; a dimension that config.json lacks is 0."""

    num_parameters: int
    adapted: tuple[tuple[str, int, int], ...] = ()
    """Names and shapes of the matrices that LoRA can adapt."""
    num_layers: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    num_heads: int = 0
    hidden_size: int = 0
    mlp_size: int = 0
    """Width of the MLP that one token uses: over all of its experts, if there are experts."""
    vocab_size: int = 0
    is_tied: bool = False
    """Whether the output layer is the embedding."""
    has_qk_norm: bool = False
    layer_parameters: int = 0

    @property
    def root_parameters(self) -> int:
        """Parameters outside of the layers: embeddings, the output layer, a vision encoder."""
        return self.num_parameters - self.num_layers * self.layer_parameters

    @property
    def linear_parameters(self) -> int:
        """Parameters of the decoder's linear layers, which learner.base_bits quantizes."""
        return sum(rows * cols for name, rows, cols in self.adapted if not VISION.search(name))

    @property
    def largest_tensor(self) -> int:
        """Parameters of the largest tensor: the embedding, or a matrix of a layer."""
        return self.hidden_size * max(self.vocab_size, self.mlp_size)

    @property
    def missing(self) -> list[str]:
        """Keys that config.json lacks and a plan needs."""
        return [key for key, name in NEEDED.items() if not getattr(self, name)]

    def kv_bytes(self, num_tokens: int, width: int) -> int:
        """Bytes of the keys and values of this many tokens; 0 if config.json lacks a dimension."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * width * num_tokens

    def adapter_parameters(self, policy: LoraPolicy) -> int:
        """Parameters of an adapter: rank * (rows + columns) for each adapted matrix."""
        targets = policy.target_modules
        chosen = [
            rows + columns
            for name, rows, columns in self.adapted
            if targets == "all-linear" or any(f".{name}".endswith(f".{t}") for t in targets)
        ]
        return policy.rank * sum(chosen)


def read_size(folder: Path) -> ModelSize:
    """The size of the model in a folder with a config.json and, if there are any, weight files."""
    shapes = tensor_shapes(folder)
    size = size_of(object_in(folder / "config.json"))
    if not shapes:
        if size.missing:
            raise ModelError(
                f"{folder / 'config.json'} lacks {', '.join(size.missing)}, and there are no "
                "weight files to count; fetch the model with `pettingllms models get`"
            )
        return size
    adapted = tuple(
        (name.removesuffix(".weight"), shape[0], shape[1])
        for name, shape in shapes.items()
        if len(shape) == 2 and not NOT_ADAPTED.search(name)
    )
    values = {name: getattr(size, name) for name in ModelSize.__slots__}
    values |= {
        "num_parameters": sum(math.prod(shape) for shape in shapes.values()),
        "adapted": adapted,
        "has_qk_norm": any(".q_norm." in name for name in shapes),
    }
    return ModelSize(**values)


def size_of(config: Mapping[str, Any]) -> ModelSize:
    """The size of a decoder with gated MLPs, as in Llama and Qwen, from its config.json."""
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    heads, hidden = _count(text, "num_attention_heads"), _count(text, "hidden_size")
    head_dim = _count(text, "head_dim") or (hidden // heads if heads else 0)
    kv_heads = _count(text, "num_key_value_heads") or heads
    layers, vocab = _count(text, "num_hidden_layers"), _count(text, "vocab_size")
    experts = _count(text, "num_experts") or _count(text, "num_local_experts")
    mlp = _count(text, "intermediate_size")
    expert = _count(text, "moe_intermediate_size") or mlp
    has_norm = bool(QK_NORM.search(str(text.get("model_type", ""))))
    queries, keys = heads * head_dim, kv_heads * head_dim
    matrices = [
        ("self_attn.q_proj", queries, hidden),
        ("self_attn.k_proj", keys, hidden),
        ("self_attn.v_proj", keys, hidden),
        ("self_attn.o_proj", hidden, queries),
    ]
    if not experts:
        matrices += [("mlp.gate_proj", mlp, hidden), ("mlp.up_proj", mlp, hidden)]
        matrices.append(("mlp.down_proj", hidden, mlp))
    layer = (
        sum(rows * columns for _, rows, columns in matrices) + 2 * hidden + 2 * head_dim * has_norm
    )
    layer += experts * (3 * expert * hidden + hidden)
    tied = bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    return ModelSize(
        num_parameters=layers * layer + hidden + vocab * hidden * (1 if tied else 2),
        adapted=tuple(matrices * layers),
        num_layers=layers,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        num_heads=heads,
        hidden_size=hidden,
        mlp_size=expert * _count(text, "num_experts_per_tok") if experts else mlp,
        vocab_size=vocab,
        is_tied=tied,
        has_qk_norm=has_norm,
        layer_parameters=layer,
    )


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) else 0
