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
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pettingllms.config.eyes import sees
from pettingllms.errors import ImageError
from pettingllms.images import open_image
from pettingllms.types import Ids, Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

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
        self._patch = int(config["vision_config"]["patch_size"])
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

    def places(self, prompt_ids: Ids, images: Sequence[Image]) -> npt.NDArray[np.bool_]:
        """Where in a prompt pieces of its images stand; ImageError if they are not its images."""
        places: npt.NDArray[np.bool_] = prompt_ids == self.image_id
        if (found := int(places.sum())) != (expected := sum(map(self.num_tokens, images))):
            raise ImageError(
                f"a prompt has {found} places for {len(images)} images that take {expected}; was "
                "it made for other images, or with another processor?"
            )
        return places

    def narrowed(self, prompt_ids: Ids, images: Sequence[Image]) -> list[int]:
        """The prompt with one place for each image."""
        places = np.flatnonzero(self.places(prompt_ids, images))
        counts = [self.num_tokens(image) for image in images]
        firsts = places[np.cumsum([0, *counts[:-1]])] if counts else places
        ids: list[int] = np.delete(prompt_ids, np.setdiff1d(places, firsts)).tolist()
        return ids

    def sized(self, image: Image) -> "Picture":
        """The picture in the size that the model looks at, which no processor scales again."""
        from PIL.Image import Resampling

        _, down, across = (int(count) for count in self._look(image).grid[0])
        picture = open_image(image)
        size = (across * self._patch, down * self._patch)
        return picture.resize(size, Resampling(self._processor.resample))

    def _read(self, image: Image) -> Pixels:
        found = self._processor(images=[open_image(image)], return_tensors="np")
        return Pixels(
            np.asarray(found["pixel_values"], dtype=np.float32),
            np.asarray(found["image_grid_thw"], dtype=np.int64),
        )


def eyes_of(folder: Path) -> Eyes | None:
    """The eyes of a model; None if it cannot be shown images."""
    if not sees(folder):
        return None
    return Eyes(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")))
