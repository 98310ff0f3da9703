"""A tiny model that sees: a Qwen2.5-VL with random weights, its processor and its template."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pettingllms.envs import make_env
from pettingllms.errors import ModelError
from pettingllms.images import NEEDS, can_decode
from pettingllms.models.folder import whole
from pettingllms.models.texts import environment_texts, texts_of
from pettingllms.models.tiny import check_sizes, make_tokenizer

_HEAD_DIM = 32
_CONTEXT = 2048
_START, _END, _IMAGE, _VIDEO = SIGNS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] %}
{%- if part['type'] == 'image' %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- else %}
{{- part['text'] }}
{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
_PROCESSOR = {
    "processor_class": "Qwen2_5_VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 28 * 28,
    "max_pixels": 28 * 28 * 256,
}
"""As the models of this family have it, but for how large an image may be: 256 tokens."""


def make_tiny_vision(
    folder: Path,
    texts: Iterable[str] | None = None,
    hidden_size: int = 128,
    num_layers: int = 2,
    vocab_size: int = 512,
    seed: int = 0,
) -> Path:
    """Write a randomly initialised Qwen2.5-VL with a tokenizer of its own; the same bytes each
    time. At the defaults it has about a million and a half parameters, and a square of 28 pixels is
    a token."""
    check_sizes(hidden_size, num_layers, vocab_size, _HEAD_DIM)
    if not can_decode():
        raise ModelError(NEEDS)
    folder = folder.expanduser().absolute()
    with whole(folder) as part:
        relay = make_env("visual_relay-v1")
        known = [*environment_texts(), *texts_of([relay], 4)] if texts is None else texts
        tokenizer = make_tokenizer(known, vocab_size, SIGNS, _TEMPLATE)
        _model(tokenizer, hidden_size, num_layers, seed).save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "preprocessor_config.json").write_text(json.dumps(_PROCESSOR, indent=2) + "\n")
    return folder


def _model(tokenizer: Any, hidden_size: int, num_layers: int, seed: int) -> Any:
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    num_heads = hidden_size // _HEAD_DIM
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(SIGNS))
    ends = {
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    made: Any = Qwen2_5_VLConfig
    config = made(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": hidden_size,
            "intermediate_size": 4 * hidden_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_heads // 2,
            "max_position_embeddings": _CONTEXT,
            # Time, height and width share the half of a head.
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [4, 6, 6],
            },
            "initializer_range": hidden_size**-0.5,
            "tie_word_embeddings": True,
            **ends,
        },
        vision_config={
            "depth": 2,
            "hidden_size": hidden_size,
            "intermediate_size": 2 * hidden_size,
            "num_heads": num_heads,
            "out_hidden_size": hidden_size,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "initializer_range": hidden_size**-0.5,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
        **ends,
    )
    model: Any = Qwen2_5_VLForConditionalGeneration
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model(config).float()
