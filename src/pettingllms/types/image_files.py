"""Images of episode files: a folder next to the file, with one PNG per distinct image.

Records refer to an image by the hash of its bytes. An image that occurs in many turns is stored
once, and a changed or missing file is detected when it is read.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from pettingllms.errors import RecordError
from pettingllms.types.messages import Image

FOLDER = "images"
DIGEST = re.compile(r"[0-9a-f]{64}")
CACHE = 256
ImageLoader = Callable[[str], Image]
"""Loads the image with a digest; raises RecordError if it is missing."""


def image_file(episodes: Path, digest: str) -> Path:
    """Path of an image of an episode file."""
    if not DIGEST.fullmatch(digest):
        raise RecordError(f"image name {digest!r:.80} is not a SHA-256 digest")
    return episodes.parent / FOLDER / f"{digest}.png"


def store_images(episodes: Path, images: Iterable[Image]) -> None:
    """Write the images that do not exist yet, each atomically."""
    for image in dict.fromkeys(images):
        path = image_file(episodes, image.digest)
        if path.is_file():
            continue
        path.parent.mkdir(exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(image.data)
        Path(part).chmod(0o644)
        Path(part).replace(path)


def image_loader(episodes: Path) -> ImageLoader:
    """A cached loader of the images of an episode file."""

    @lru_cache(maxsize=CACHE)
    def load_image(digest: str) -> Image:
        path = image_file(episodes, digest)
        try:
            image = Image(path.read_bytes())
        except FileNotFoundError:
            raise RecordError(
                f"image {digest} is missing: no file {path}; copy the folder '{FOLDER}' together "
                "with the episode file"
            ) from None
        if image.digest != digest:
            raise RecordError(f"image {path} has changed: its content does not match its digest")
        return image

    return load_image


def no_images(digest: str) -> Image:
    """Loader for records without an image folder: every image is missing."""
    raise RecordError(f"image {digest} is missing: this record was read without its images")
