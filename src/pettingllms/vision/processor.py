"""What a model sees of an image: the pixels that its own processor makes, and their tokens.

The sampler and the learner read the same bytes with the same processor, so that a turn's record
needs its images alone. Pillow's form of the processor is used on both sides: it needs no second
library, and gives the same numbers everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pettingllms.errors import ImageError
from pettingllms.types import Ids, Image
from pettingllms.vision.families import Inputs, family_of
from pettingllms.vision.images import open_image
from pettingllms.vision.support import supports_images

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

CACHE = 512
"""Images of which the pixels are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """Images as a model takes them, one behind the other."""

    inputs: dict[str, npt.NDArray[Any]]
    """By the names that the model has for them."""
    lengths: list[int]
    """Tokens of each image."""


class ImageProcessor:
    """A model's own way to look at images."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoImageProcessor

        processors: Any = AutoImageProcessor
        self._processor = processors.from_pretrained(folder, local_files_only=True, backend="pil")
        self._config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        self._family = family_of(self._config.model_type)
        self.tiled = self._family.tiled
        """Whether the model takes pixels under an axis for prompts."""
        self.image_id = int(self._config.image_token_id)
        """The id that stands in a prompt wherever a piece of an image is seen."""
        self._look = lru_cache(maxsize=CACHE)(self._read)

    def see(self, images: Sequence[Image]) -> Pixels:
        """The pixels of one image or more."""
        seen = [self._look(image) for image in images]
        inputs = {
            name: np.concatenate([np.asarray(one[name]) for one in seen])
            for name in self._family.arrays
        }
        return Pixels(inputs, [self.num_tokens(image) for image in images])

    def num_tokens(self, image: Image) -> int:
        """Places that the image takes in a prompt."""
        return self._family.num_tokens(self._config, self._look(image))

    def text(self, image: Image, sign: str) -> str:
        """What stands in a prompt for an image, where `sign` is a place."""
        return self._family.text(sign, self.num_tokens(image), self._look(image))

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
        """The prompt with one place for each image, and nothing of the family's own around it."""
        places = np.flatnonzero(self.places(prompt_ids, images))
        before, behind = self._family.around
        ids: list[int] = []
        start = first = 0
        for image in images:
            last = first + self.num_tokens(image) - 1
            ids += [*prompt_ids[start : places[first] - before].tolist(), self.image_id]
            start, first = int(places[last]) + 1 + behind, last + 1
        return [*ids, *prompt_ids[start:].tolist()]

    def sized(self, image: Image) -> "Picture":
        """The picture in the size that the model looks at, which no processor scales again. What is
        seen in tiles is left as it is: it has no one size."""
        from PIL import Image as pillow  # noqa: N813 - it is a module
        from PIL.Image import Resampling

        picture = open_image(image)
        if self.tiled:
            return picture
        if "image_grid_thw" in self._family.arrays:
            _, down, across = (int(count) for count in self._look(image)["image_grid_thw"][0])
            patch = self._config.vision_config.patch_size
            size = (across * patch, down * patch)
            return picture.resize(size, Resampling(self._processor.resample))
        raw = self._processor(
            images=[picture], do_rescale=False, do_normalize=False, return_tensors="np"
        )
        return pillow.fromarray(raw["pixel_values"][0].transpose(1, 2, 0).astype(np.uint8))

    def _read(self, image: Image) -> Inputs:
        found = self._processor(
            images=[open_image(image)], return_tensors="np", **self._family.options
        )
        inputs: dict[str, Any] = dict(found)
        if self.tiled:
            inputs |= {name: inputs[name][0] for name in self._family.arrays}
        inputs["pixel_values"] = np.asarray(inputs["pixel_values"], dtype=np.float32)
        return inputs


def load_image_processor(folder: Path) -> ImageProcessor | None:
    """The eyes of a model; None if it cannot be shown images."""
    return ImageProcessor(folder) if supports_images(folder) else None
