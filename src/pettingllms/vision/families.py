"""Families of models that see, and all that differs between them.

A family says which arrays of its processor its models are given, how many places an image takes
in a prompt, and what stands there. Everything else is the same code for all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Inputs = Mapping[str, Any]
"""What a processor makes of one image, by the names that the model has for it."""
FAKE, WHOLE = "<fake_token_around_image>", "<global-img>"


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one kind are shown images."""

    arrays: tuple[str, ...]
    """What the model is given of an image. Images lie behind each other along the first axis."""
    num_tokens: Callable[[Any, Inputs], int]
    """Places of an image in a prompt, by the model's configuration."""
    text: Callable[[str, int, Inputs], str]
    """What stands in a prompt for an image: from the sign of a place and the number of places."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the processor."""
    around: tuple[int, int] = (0, 0)
    """Tokens of the family's own before the first place of an image, and behind the last."""
    tiled: bool = False
    """Whether an image is seen in tiles, under an axis for prompts."""


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
    first = int(vision.model_type == "clip_vision_model")  # one that stands for the whole image
    return int(down * across) + first - int(config.vision_feature_select_strategy == "default")


def _repeated(sign: str, count: int, _: Inputs) -> str:
    return sign * count


def _in_tiles(sign: str, count: int, inputs: Inputs) -> str:
    """Tiles row by row, each under its name, and the image as a whole."""
    rows, columns = inputs["rows"][0][0], inputs["cols"][0][0]
    places = sign * (count // (rows * columns + 1))
    lines = [
        "".join(f"{FAKE}<row_{row}_col_{at}>{places}" for at in range(1, columns + 1)) + "\n"
        for row in range(1, rows + 1)
    ]
    gap = "\n" if lines else ""
    return "".join(lines) + f"{gap}{FAKE}{WHOLE}{places}{FAKE}"


_QWEN = Family(("pixel_values", "image_grid_thw"), _by_grid, _repeated)
_IDEFICS = Family(
    ("pixel_values", "pixel_attention_mask"),
    _by_tiles,
    _in_tiles,
    options={"return_row_col_info": True},
    around=(2, 1),
    tiled=True,
)
_TABLE = {  # the names of `config.eyes.FAMILIES`
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "idefics3": _IDEFICS,
    "smolvlm": _IDEFICS,
    "llava": Family(("pixel_values",), _by_size, _repeated),
}


def family_of(model_type: str) -> Family:
    """The family of a model that sees."""
    return _TABLE[model_type]
