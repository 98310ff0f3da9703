"""Images decoded and made: the one place that hands bytes of somebody else's to Pillow.

A picture comes from an environment, a data set or a program, so it is looked at before anything is
decoded: how many bytes, which format, how many pixels its header promises. Only then are its pixels
read. Whatever is wrong with it is an ImageError with the reason, which a turn can record.
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
"""Of a file."""
MAX_PIXELS = 4096 * 4096
"""Of a picture, by its header: what it would take in memory is a few bytes for each."""
MAX_RATIO = 100
"""Of the longer side to the shorter: a sliver becomes a picture of nothing when it is scaled."""
MODES = ("L", "RGB")
"""Grey and colours. Whatever is transparent looks different on every ground."""
CACHE = 1024
SIGNATURE = b"\x89PNG\r\n\x1a\n"
NEEDS = "images need Pillow; pip install 'pettingllms[vision]'"


def can_decode() -> bool:
    """Whether Pillow is here."""
    return find_spec("PIL") is not None


@lru_cache(maxsize=CACHE)
def check_image(image: Image) -> None:
    """Raise ImageError with the reason if the image cannot be shown to anyone."""
    open_image(image)


def open_image(image: Image) -> "Picture":
    """The picture in RGB, every pixel of it read."""
    name = f"image {image.digest[:12]}"
    if not image.data:
        raise ImageError(f"{name} is empty")
    if len(image.data) > MAX_BYTES:
        raise ImageError(f"{name} has {len(image.data)} bytes, and {MAX_BYTES} are allowed")
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
        raise ImageError(f"{name} would be too large once it is unpacked: {error}") from error
    except broken as error:
        raise ImageError(f"{name} cannot be decoded, was it cut short? {error}") from error


def _check_header(name: str, found: "Picture") -> None:
    width, height = found.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has {width}x{height} pixels, and {MAX_PIXELS} are allowed; make it smaller"
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ImageError(
            f"{name} has {width}x{height} pixels; a side may be {MAX_RATIO} times the other at most"
        )
    if found.mode not in MODES or "transparency" in found.info:
        raise ImageError(
            f"{name} has the mode {found.mode}, or is transparent in places; give one of "
            f"{', '.join(MODES)}: convert it over the ground that it is meant for"
        )
    if getattr(found, "n_frames", 1) != 1:
        raise ImageError(f"{name} has several frames; give them as images of their own")


def make_image(picture: "Picture") -> Image:
    """The image of a picture; the same bytes for the same pixels."""
    file = BytesIO()
    picture.convert("RGB").save(file, format="PNG", optimize=False, compress_level=6)
    return Image(file.getvalue())


def readable(message: Message) -> str:
    """A message for a policy that reads and cannot see."""
    if message.images:
        raise SamplerError(
            "a policy that reads text alone was shown an image; give the role to a policy that "
            'sees, or set env.observation = "text"'
        )
    return message.text
