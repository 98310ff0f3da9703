"""VLM families and their differences.

A family declares which arrays of its image processor its models take, how many tokens an image
takes in a prompt, and the text of those tokens. All other code is shared.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "idefics3", "smolvlm", "llava")
"""Supported VLM families, by the `model_type` of their config.json."""
ADVICE = f"use a VLM ({', '.join(FAMILIES)})"


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model; ModelError if the file has none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise ModelError(f"{path} is not JSON ({error}); fetch the model again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} has no JSON object; fetch the model again")
    return found


def supports_images(folder: Path) -> bool:
    """Whether the model in a folder is a supported VLM."""
    config = object_in(folder / "config.json")
    if config.get("model_type") not in FAMILIES:
        return False
    # LLaVA's Pixtral encoder takes images of any size, which is not supported.
    tower = config.get("vision_config")
    return not isinstance(tower, dict) or tower.get("model_type") != "pixtral"


Inputs = Mapping[str, Any]
"""The image processor's output for one image, by the model's argument names."""
FAKE, WHOLE = "<fake_token_around_image>", "<global-img>"


@dataclass(frozen=True, slots=True)
class Family:
    """How the models of a family take images."""

    arrays: tuple[str, ...]
    """The arrays that the model takes. Images are concatenated along the first axis."""
    num_tokens: Callable[[Any, Inputs], int]
    """Image tokens of an image in a prompt, from the model's configuration."""
    text: Callable[[str, int, Inputs], str]
    """The text of an image in a prompt, from the image token and its count."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the image processor."""
    around: tuple[int, int] = (0, 0)
    """Numbers of the family's special tokens before and after the image tokens of an image."""
    tiled: bool = False
    """Whether images are split into tiles; pixels then have an axis for prompts."""


def _by_grid(config: Any, inputs: Inputs) -> int:
    merged: int = config.vision_config.spatial_merge_size**2
    return int(inputs["image_grid_thw"].prod()) // merged


def _by_tiles(config: Any, inputs: Inputs) -> int:
    vision = config.vision_config
    across: int = vision.image_size // vision.patch_size // config.scale_factor
    return int(inputs["pixel_values"].shape[0]) * across**2


def _by_size(config: Any, inputs: Inputs) -> int:
    vision = config.vision_config
    down, across = (side // vision.patch_size for side in inputs["pixel_values"].shape[-2:])
    first = int(vision.model_type == "clip_vision_model")  # the class token
    return int(down * across) + first - int(config.vision_feature_select_strategy == "default")


def _repeated(image_token: str, count: int, _: Inputs) -> str:
    return image_token * count


def _in_tiles(image_token: str, count: int, inputs: Inputs) -> str:
    """Tiles row by row, each with its label, then the whole image."""
    rows, columns = inputs["rows"][0][0], inputs["cols"][0][0]
    tokens = image_token * (count // (rows * columns + 1))
    lines = [
        "".join(f"{FAKE}<row_{row}_col_{at}>{tokens}" for at in range(1, columns + 1)) + "\n"
        for row in range(1, rows + 1)
    ]
    gap = "\n" if lines else ""
    return "".join(lines) + f"{gap}{FAKE}{WHOLE}{tokens}{FAKE}"


_QWEN = Family(("pixel_values", "image_grid_thw"), _by_grid, _repeated)
_IDEFICS = Family(
    ("pixel_values", "pixel_attention_mask"),
    _by_tiles,
    _in_tiles,
    options={"return_row_col_info": True},
    around=(2, 1),
    tiled=True,
)
_TABLE = {  # the names of `vision.support.FAMILIES`
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "idefics3": _IDEFICS,
    "smolvlm": _IDEFICS,
    "llava": Family(("pixel_values",), _by_size, _repeated),
}


def family_of(model_type: str) -> Family:
    """The family of a VLM."""
    return _TABLE[model_type]
