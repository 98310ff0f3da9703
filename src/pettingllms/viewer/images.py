"""Images of an episode as data URLs by hash, so that served and exported pages show them alike.

Files without a PNG signature are never sent to the browser, and the bytes per episode are limited.
"""

import base64
from collections.abc import Iterable
from typing import Any

from pettingllms.types import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_BYTES = 16_000_000
"""Upper bound on image bytes per episode."""


def shown_images(images: Iterable[Image]) -> dict[str, dict[str, Any]]:
    """By digest: the data URL for an <img>, or why the image is missing."""
    found: dict[str, dict[str, Any]] = {}
    left = MAX_BYTES
    for image in dict.fromkeys(images):
        size = len(image.data)
        if not image.data.startswith(SIGNATURE):
            found[image.digest] = {"missing": "not a PNG file"}
        elif size > left:
            found[image.digest] = {"missing": f"{size:,} bytes; over the image limit per episode"}
        else:
            left -= size
            data = base64.b64encode(image.data).decode()
            found[image.digest] = {"data": f"data:image/png;base64,{data}"}
    return found
