"""Images of an episode as the page shows them: by their hash, as data that needs no second request.

So the served page and the one in a file show them alike. What is not a PNG file by its first bytes
is never handed to a browser, and an episode carries only so much.
"""

import base64
from collections.abc import Iterable
from typing import Any

from pettingllms.types import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_BYTES = 16_000_000
"""Of all images that one episode carries to the page."""


def shown_images(images: Iterable[Image]) -> dict[str, dict[str, Any]]:
    """By digest: the address that an <img> takes, or why there is none."""
    found: dict[str, dict[str, Any]] = {}
    left = MAX_BYTES
    for image in dict.fromkeys(images):
        size = len(image.data)
        if not image.data.startswith(SIGNATURE):
            found[image.digest] = {"missing": "not a PNG file"}
        elif size > left:
            found[image.digest] = {"missing": f"{size:,} bytes; the episode has too many to show"}
        else:
            left -= size
            data = base64.b64encode(image.data).decode()
            found[image.digest] = {"data": f"data:image/png;base64,{data}"}
    return found
