"""The images of episode files: a folder beside them, one file for each content.

A record names an image by the hash of its bytes, so one that was shown in a thousand turns is
stored once, and one whose file was changed or lost is found out when it is read.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from pettingllms.errors import RecordError
from pettingllms.types.parts import Image

FOLDER = "images"
DIGEST = re.compile(r"[0-9a-f]{64}")
CACHE = 256
Look = Callable[[str], Image]
"""Finds the image of a digest; RecordError if there is none."""


def image_file(episodes: Path, digest: str) -> Path:
    """Where an image of an episode file is."""
    if not DIGEST.fullmatch(digest):
        raise RecordError(f"an image is named {digest!r:.80}, which is no SHA-256")
    return episodes.parent / FOLDER / f"{digest}.png"


def store_images(episodes: Path, images: Iterable[Image]) -> None:
    """Write those that are not there yet, each at once whole."""
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


def images_beside(episodes: Path) -> Look:
    """The images of an episode file, each read once."""

    @lru_cache(maxsize=CACHE)
    def look(digest: str) -> Image:
        path = image_file(episodes, digest)
        try:
            image = Image(path.read_bytes())
        except FileNotFoundError:
            raise RecordError(
                f"image {digest} is missing: there is no {path}; copy the folder '{FOLDER}' "
                "together with the episodes"
            ) from None
        if image.digest != digest:
            raise RecordError(f"image {path} has changed: its content is not what its name says")
        return image

    return look


def no_images(digest: str) -> Image:
    """For a record that comes without a file: whatever image it names is missing."""
    raise RecordError(f"image {digest} is missing: this record comes without its images")
