"""Tiny VLMs: real architectures with random weights, an image processor and a chat template."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.envs import make_env
from pettingllms.errors import ModelError, nearest
from pettingllms.models.folder import save_quietly, whole
from pettingllms.models.tiny import (
    check_sizes,
    environment_texts,
    make_symbol_tokenizer,
    make_tokenizer,
    texts_of,
)
from pettingllms.vision.images import NEEDS, can_decode

_HEAD_DIM = 32
_CONTEXT = 2048
_TILE = 56
"""Image width of the families with tiles, or with one fixed size."""
_NUM_PIECES = (_TILE // 14 // 2) ** 2
"""Image tokens of a tile."""
_TEMPLATE = """\
{%- for message in messages %}
{{- BEGIN }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] %}
{{- 'SIGN' if part['type'] == 'image' else part['text'] }}
{%- endfor %}
{%- endif %}
{{- 'END' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'OPEN' }}
{%- endif %}
"""
_OPENAI = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_FOUR = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_TILES = (
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)),
)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes that are common to all families."""

    text: dict[str, Any]
    """Configuration of the language model, as for Llama and Qwen."""
    vision: dict[str, Any]
    """Configuration of the vision encoder."""
    ids: Mapping[str, int]
    """Ids of the family's special tokens."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A family's tokenizer, image processor and configuration."""

    special_tokens: tuple[str, ...]
    sign: str
    """The text of an image in a prompt."""
    processor: dict[str, Any]
    """As for the models of the family, except for the largest size of an image."""
    config: Callable[[_Sizes], dict[str, Any]]
    joined: dict[str, Any] = field(default_factory=dict)
    """Further options of its processor, if they are in a separate file."""


def _qwen_tokens(ids: Mapping[str, int]) -> dict[str, int]:
    start, end, image, video = _FOUR
    return {
        "vision_start_token_id": ids[start],
        "vision_end_token_id": ids[end],
        "image_token_id": ids[image],
        "video_token_id": ids[video],
    }


def _qwen2_5_vl(sizes: _Sizes) -> dict[str, Any]:
    # Time, height and width share half of a head.
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]}
    vision = {
        **sizes.vision,
        "depth": 2,
        "out_hidden_size": sizes.text["hidden_size"],
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1],
    }
    text = {**sizes.text, "rope_parameters": rope}
    return {"text_config": text, "vision_config": vision, **_qwen_tokens(sizes.ids)}


def _qwen3_vl(sizes: _Sizes) -> dict[str, Any]:
    rope = {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    }
    vision = {
        **sizes.vision,
        "depth": 2,
        "out_hidden_size": sizes.text["hidden_size"],
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [0],
    }
    text = {**sizes.text, "head_dim": _HEAD_DIM, "rope_parameters": rope}
    return {"text_config": text, "vision_config": vision, **_qwen_tokens(sizes.ids)}


def _tower(sizes: _Sizes) -> dict[str, Any]:
    heads = {"num_attention_heads": sizes.vision["num_heads"], "num_hidden_layers": 2}
    rest = {name: value for name, value in sizes.vision.items() if name != "num_heads"}
    return {**rest, **heads, "image_size": _TILE, "patch_size": 14}


def _idefics3(sizes: _Sizes) -> dict[str, Any]:
    return {
        "text_config": {**sizes.text, "model_type": "llama"},
        "vision_config": _tower(sizes),
        "scale_factor": 2,
        "image_token_id": sizes.ids["<image>"],
    }


def _llava(sizes: _Sizes) -> dict[str, Any]:
    return {
        "text_config": {**sizes.text, "model_type": "llama"},
        "vision_config": {**_tower(sizes), "model_type": "clip_vision_model"},
        "image_token_id": sizes.ids["<image>"],
    }


def _qwen_processor(kind: str, patch: int, colors: Mapping[str, Any]) -> dict[str, Any]:
    square = (2 * patch) ** 2
    return {
        "processor_class": kind,
        "image_processor_type": "Qwen2VLImageProcessor",
        **colors,
        "patch_size": patch,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "min_pixels": square,
        "max_pixels": square * 256,
    }


def _tile_processor(name: str) -> dict[str, Any]:
    return {
        "processor_class": f"{name}Processor",
        "image_processor_type": f"{name}ImageProcessor",
        **_HALF,
        "do_image_splitting": True,
        "size": {"longest_edge": 2 * _TILE},
        "max_image_size": {"longest_edge": _TILE},
    }


_KINDS = {
    "qwen2_5_vl": _Kind(
        _FOUR,
        "<|vision_start|><|image_pad|><|vision_end|>",
        _qwen_processor("Qwen2_5_VLProcessor", 14, _OPENAI),
        _qwen2_5_vl,
    ),
    "qwen3_vl": _Kind(
        _FOUR,
        "<|vision_start|><|image_pad|><|vision_end|>",
        _qwen_processor("Qwen3VLProcessor", 16, _HALF),
        _qwen3_vl,
    ),
    "idefics3": _Kind(
        _TILES, "<image>", _tile_processor("Idefics3"), _idefics3, {"image_seq_len": _NUM_PIECES}
    ),
    "smolvlm": _Kind(
        _TILES, "<image>", _tile_processor("SmolVLM"), _idefics3, {"image_seq_len": _NUM_PIECES}
    ),
    "llava": _Kind(
        ("<image>",),
        "<image>",
        {
            "processor_class": "LlavaProcessor",
            "image_processor_type": "CLIPImageProcessor",
            **_OPENAI,
            "size": {"shortest_edge": _TILE},
            "crop_size": {"height": _TILE, "width": _TILE},
        },
        _llava,
        {
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    ),
}


def make_tiny_vision(
    folder: Path,
    texts: Iterable[str] | None = None,
    hidden_size: int = 128,
    num_layers: int = 2,
    vocab_size: int = 512,
    seed: int = 0,
    family: str = "qwen2_5_vl",
    symbols: bool = False,
) -> Path:
    """Write a randomly initialized VLM with its own tokenizer; the same bytes each time. The
    default is a Qwen2.5-VL of about 1.5 million parameters, with one image token per 28 x 28
    pixels. `symbols` as for `make_tiny`."""
    if family not in _KINDS:
        raise ModelError(f"no VLM family is called '{family}'; {nearest(family, _KINDS)}")
    check_sizes(hidden_size, num_layers, vocab_size, _HEAD_DIM)
    if not can_decode():
        raise ModelError(NEEDS)
    folder = folder.expanduser().absolute()
    kind = _KINDS[family]
    with whole(folder) as part:
        relay = make_env("visual_relay-v1")
        known = [*environment_texts(), *texts_of([relay], 4)] if texts is None else texts
        make = make_symbol_tokenizer if symbols else make_tokenizer
        template = _template(kind.sign, symbols)
        tokenizer = make(known, vocab_size, kind.special_tokens, template)
        save_quietly(_model(family, kind, tokenizer, hidden_size, num_layers, seed), part)
        tokenizer.save_pretrained(part)
        _write(part / "preprocessor_config.json", kind.processor)
        if kind.joined:
            named = {"processor_class": kind.processor["processor_class"]}
            _write(part / "processor_config.json", {**named, **kind.joined})
    return folder


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _template(sign: str, symbols: bool) -> str:
    """How messages are delimited: as in ChatML, or by one token each."""
    chat = (r"'<|im_start|>' + message['role'] + '\n'", r"<|im_end|>\n", r"<|im_start|>assistant\n")
    begin, end, opened = ("'<|' + message['role'] + '|>'", "", "<|assistant|>") if symbols else chat
    parts = {"BEGIN": begin, "END": end, "OPEN": opened, "SIGN": sign}
    return re.sub("|".join(parts), lambda found: parts[found[0]], _TEMPLATE)


def _model(
    family: str, kind: _Kind, tokenizer: Any, hidden_size: int, num_layers: int, seed: int
) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    num_heads = hidden_size // _HEAD_DIM
    ends = {
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_heads // 2,
        "max_position_embeddings": _CONTEXT,
        "initializer_range": hidden_size**-0.5,
        "tie_word_embeddings": True,
        **ends,
    }
    vision = {
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_heads": num_heads,
        "initializer_range": hidden_size**-0.5,
    }
    ids = dict(
        zip(
            kind.special_tokens,
            tokenizer.convert_tokens_to_ids(list(kind.special_tokens)),
            strict=True,
        )
    )
    made: Any = AutoConfig
    own = kind.config(_Sizes(text, vision, ids))
    config = made.for_model(family, **own, tie_word_embeddings=True, **ends)
    auto: Any = AutoModelForImageTextToText
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return auto.from_config(config, dtype=torch.float32)
