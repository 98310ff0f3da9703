"""The image processor of a VLM: pixels and image tokens.

Sampler and learner process the same bytes with the same image processor, so that a turn records
only its images. Both use the Pillow backend: it needs no second library, and its results are the
same everywhere.
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
from pettingllms.vision.families import Inputs, family_of, supports_images
from pettingllms.vision.images import open_image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

CACHE = 512
"""Images whose pixels are cached."""


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """Preprocessed images, concatenated."""

    inputs: dict[str, npt.NDArray[Any]]
    """By the model's argument names."""
    lengths: list[int]
    """Tokens of each image."""


class ImageProcessor:
    """The image processor of one model."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoImageProcessor

        processors: Any = AutoImageProcessor
        self._processor = processors.from_pretrained(folder, local_files_only=True, backend="pil")
        self._config: Any = AutoConfig.from_pretrained(folder, local_files_only=True)
        self._family = family_of(self._config.model_type)
        self.tiled = self._family.tiled
        """Whether the model's pixels have an axis for prompts."""
        self.image_id = int(self._config.image_token_id)
        """The id of the image token."""
        self._inputs = lru_cache(maxsize=CACHE)(self._process)

    def pixels(self, images: Sequence[Image]) -> Pixels:
        """The pixels of one or more images."""
        processed = [self._inputs(image) for image in images]
        inputs = {
            name: np.concatenate([np.asarray(one[name]) for one in processed])
            for name in self._family.arrays
        }
        return Pixels(inputs, [self.num_tokens(image) for image in images])

    def num_tokens(self, image: Image) -> int:
        """Number of image tokens of an image in a prompt."""
        return self._family.num_tokens(self._config, self._inputs(image))

    def text(self, image: Image, image_token: str) -> str:
        """The text of an image in a prompt, with all of its image tokens."""
        return self._family.text(image_token, self.num_tokens(image), self._inputs(image))

    def image_positions(self, prompt_ids: Ids, images: Sequence[Image]) -> npt.NDArray[np.bool_]:
        """Mask of a prompt's image tokens; ImageError if their number does not fit the images."""
        mask: npt.NDArray[np.bool_] = prompt_ids == self.image_id
        if (found := int(mask.sum())) != (expected := sum(map(self.num_tokens, images))):
            raise ImageError(
                f"a prompt has {found} image tokens for {len(images)} images that take {expected}; "
                "was it rendered for other images, or with another image processor?"
            )
        return mask

    def unexpanded(self, prompt_ids: Ids, images: Sequence[Image]) -> list[int]:
        """The prompt with one image token per image, without the family's special tokens around
        it."""
        positions = np.flatnonzero(self.image_positions(prompt_ids, images))
        before, after = self._family.around
        ids: list[int] = []
        start = first = 0
        for image in images:
            last = first + self.num_tokens(image) - 1
            ids += [*prompt_ids[start : positions[first] - before].tolist(), self.image_id]
            start, first = int(positions[last]) + 1 + after, last + 1
        return [*ids, *prompt_ids[start:].tolist()]

    def resized(self, image: Image) -> "Picture":
        """The image at the model's input size, so that no processor resizes it again. Images that
        are split into tiles keep their size."""
        from PIL import Image as pillow  # noqa: N813 - it is a module
        from PIL.Image import Resampling

        picture = open_image(image)
        if self.tiled:
            return picture
        if "image_grid_thw" in self._family.arrays:
            _, down, across = (int(count) for count in self._inputs(image)["image_grid_thw"][0])
            patch = self._config.vision_config.patch_size
            size = (across * patch, down * patch)
            return picture.resize(size, Resampling(self._processor.resample))
        raw = self._processor(
            images=[picture], do_rescale=False, do_normalize=False, return_tensors="np"
        )
        return pillow.fromarray(raw["pixel_values"][0].transpose(1, 2, 0).astype(np.uint8))

    def _process(self, image: Image) -> Inputs:
        found = self._processor(
            images=[open_image(image)], return_tensors="np", **self._family.options
        )
        inputs: dict[str, Any] = dict(found)
        if self.tiled:
            inputs |= {name: inputs[name][0] for name in self._family.arrays}
        inputs["pixel_values"] = np.asarray(inputs["pixel_values"], dtype=np.float32)
        return inputs


def load_image_processor(folder: Path) -> ImageProcessor | None:
    """The image processor of a model; None if it is text-only."""
    return ImageProcessor(folder) if supports_images(folder) else None
