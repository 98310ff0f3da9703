"""Decoding and encoding of images: the only code that passes untrusted bytes to Pillow.

An image comes from an environment, a dataset or a program, so it is checked before it is decoded:
number of bytes, format, and the number of pixels in its header. Every fault raises an ImageError
with the reason, which a turn can record.
"""

import struct
import zlib
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

from pettingllms.errors import ImageError, SamplerError
from pettingllms.types import Image, Message

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MAX_BYTES = 8 * 2**20
"""Largest size of a file."""
MAX_PIXELS = 4096 * 4096
"""Most pixels of an image, from its header; each takes a few bytes of memory."""
MAX_RATIO = 100
"""Largest ratio of the longer side to the shorter; resizing would erase a narrower image."""
MODES = ("L", "RGB")
"""Gray and color. Transparent images depend on their background."""
CACHE = 1024
SIGNATURE = b"\x89PNG\r\n\x1a\n"
NEEDS = "images need Pillow; pip install 'pettingllms[vision]'"


def can_decode() -> bool:
    """Whether Pillow is installed."""
    return find_spec("PIL") is not None


@lru_cache(maxsize=CACHE)
def check_image(image: Image) -> None:
    """Raise ImageError with the reason if the image cannot be decoded."""
    open_image(image)


def open_image(image: Image) -> "Picture":
    """The decoded image in RGB."""
    name = f"image {image.digest[:12]}"
    if not image.data:
        raise ImageError(f"{name} is empty")
    if len(image.data) > MAX_BYTES:
        raise ImageError(f"{name} has {len(image.data)} bytes; at most {MAX_BYTES} are allowed")
    if not image.data.startswith(SIGNATURE):
        raise ImageError(
            f"{name} is not a PNG file: it begins with {image.data[:8]!r}; save as PNG"
        )
    if not can_decode():
        raise ImageError(f"{name} cannot be read: {NEEDS}")
    from PIL import Image as pillow  # noqa: N813 - it is a module

    broken = (OSError, SyntaxError, ValueError, EOFError, OverflowError, struct.error, zlib.error)
    try:
        with pillow.open(BytesIO(image.data), formats=("PNG",)) as found:
            _check_header(name, found)
            found.verify()  # checksums, to the last chunk; the file must be opened again after it
        with pillow.open(BytesIO(image.data), formats=("PNG",)) as found:
            return found.convert("RGB")
    except ImageError:
        raise
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{name} is too large when decompressed: {error}") from error
    except broken as error:
        raise ImageError(f"{name} cannot be decoded; is it truncated? {error}") from error


def _check_header(name: str, found: "Picture") -> None:
    width, height = found.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has {width}x{height} pixels; at most {MAX_PIXELS} are allowed; make it smaller"
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ImageError(
            f"{name} has {width}x{height} pixels; one side may be at most {MAX_RATIO} times the "
            "other"
        )
    if found.mode not in MODES or "transparency" in found.info:
        raise ImageError(
            f"{name} has the mode {found.mode} or transparent pixels, expected one of "
            f"{', '.join(MODES)}; convert it on its background color"
        )
    if getattr(found, "n_frames", 1) != 1:
        raise ImageError(f"{name} has several frames; pass each frame as an image")


def make_image(picture: "Picture") -> Image:
    """Encode a Pillow image as PNG; the same bytes for the same pixels."""
    file = BytesIO()
    picture.convert("RGB").save(file, format="PNG", optimize=False, compress_level=6)
    return Image(file.getvalue())


def text_only(message: Message) -> str:
    """The text of a message, for a text-only policy; rejects images."""
    if message.images:
        raise SamplerError(
            "a message has an image, and the policy is text-only; assign the role to a VLM, or set "
            'env.observation = "text"'
        )
    return message.text
