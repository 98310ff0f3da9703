"""What a model sees of an image: the pixels that its own processor makes, and their tokens.

The sampler and the learner read the same bytes with the same processor, so that a turn's record
needs its images alone. Pillow's form of the processor is used on both sides: it needs no second
library, and gives the same numbers everywhere.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.errors import ModelError
from pettingllms.images import open_image
from pettingllms.types import Image

FAMILIES = ("qwen2_5_vl",)
"""Models whose images are laid out as this file does it."""
CACHE = 512
"""Images of which the pixels are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """Patches of images, one image behind the other."""

    values: npt.NDArray[np.float32]
    """A row for each patch."""
    grid: npt.NDArray[np.int64]
    """For each image: frames, patches down, patches across."""


class Eyes:
    """A model's own way to look at images."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        from transformers import AutoImageProcessor

        auto: Any = AutoImageProcessor
        self._processor = auto.from_pretrained(folder, local_files_only=True, backend="pil")
        self._merged = int(config["vision_config"]["spatial_merge_size"]) ** 2
        self.image_id = int(config["image_token_id"])
        """The id that stands in a prompt wherever a piece of an image is seen."""
        self._look = lru_cache(maxsize=CACHE)(self._read)

    def see(self, images: Sequence[Image]) -> Pixels:
        """The pixels of one image or more."""
        seen = [self._look(image) for image in images]
        return Pixels(
            np.concatenate([one.values for one in seen]), np.concatenate([one.grid for one in seen])
        )

    def num_tokens(self, image: Image) -> int:
        """Places that the image takes in a prompt."""
        return int(self._look(image).grid.prod()) // self._merged

    def _read(self, image: Image) -> Pixels:
        found = self._processor(images=[open_image(image)], return_tensors="np")
        return Pixels(
            np.asarray(found["pixel_values"], dtype=np.float32),
            np.asarray(found["image_grid_thw"], dtype=np.int64),
        )


def eyes_of(folder: Path) -> Eyes | None:
    """The eyes of a model; None if it only reads."""
    config = json.loads((folder / "config.json").read_text())
    if "vision_config" not in config:
        return None
    if config["model_type"] not in FAMILIES:
        raise ModelError(
            f"the model in {folder} sees, and models of the family '{config['model_type']}' cannot "
            f"be shown images here; take one of {', '.join(FAMILIES)}, or a model that reads"
        )
    return Eyes(folder, config)
