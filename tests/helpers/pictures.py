"""Valid images, and images that no library can decode."""

import io
import struct
import zlib

from PIL import Image as pillow  # noqa: N813 - it is a module
from PIL.PngImagePlugin import PngInfo

from pettingllms.types import Image


def saved(picture: pillow.Image, format: str = "PNG", **options: object) -> bytes:  # noqa: A002
    file = io.BytesIO()
    picture.save(file, format=format, **options)
    return file.getvalue()


def plain(color: str = "red", size: tuple[int, int] = (56, 56)) -> Image:
    return Image(saved(pillow.new("RGB", size, color)))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def claims(width: int, height: int, packed: bytes, depth: int = 8, color: int = 2) -> bytes:
    """A PNG whose header promises a size, whatever its data hold."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def bad_images() -> dict[str, tuple[bytes, str]]:
    """By name: the bytes, and words of the reason that must be given."""
    noise = pillow.effect_noise((64, 64), 80).convert("RGB")
    good, rgb = saved(noise), pillow.new("RGB", (8, 8), "red")
    bomb = zlib.compress(bytes(3 * 10**6), 9)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    text = PngInfo()
    text.add_text("note", "a" * 80_000_000, zip=True)
    clear = saved(pillow.new("P", (8, 8)), transparency=0)
    frames = saved(rgb, save_all=True, append_images=[pillow.new("RGB", (8, 8), "blue")])
    return {
        "nothing": (b"", "is empty"),
        "text": (b"I am a picture, believe me", "not a PNG"),
        "html": (b"<html><body>404</body></html>", "not a PNG"),
        "jpeg": (saved(rgb, "JPEG"), "not a PNG"),
        "gif": (saved(rgb, "GIF"), "not a PNG"),
        "bmp": (saved(rgb, "BMP"), "not a PNG"),
        "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG"),
        "signature alone": (good[:8], "cannot be decoded"),
        "header alone": (good[:33], "cannot be decoded"),
        "cut in half": (good[: len(good) // 2], "cannot be decoded"),
        "cut at its end": (good[:-12], "cannot be decoded"),
        "one byte flipped": (bytes(flipped), "cannot be decoded"),
        "too few pixels in it": (claims(64, 64, zlib.compress(b"\0" * 100)), "cannot be decoded"),
        "not even packed": (claims(8, 8, b"no zlib here"), "cannot be decoded"),
        "no width": (claims(0, 8, zlib.compress(b"")), "cannot be decoded"),
        "bomb": (claims(60_000, 60_000, bomb), "pixels"),
        "small bomb": (claims(5000, 5000, bomb), "pixels"),
        "bomb of text": (saved(rgb, pnginfo=text), "cannot be decoded"),
        "too many bytes": (good + b"\0" * 9_000_000, "bytes"),
        "sliver": (saved(pillow.new("RGB", (2000, 1))), "times the other"),
        "with an alpha channel": (saved(pillow.new("RGBA", (8, 8))), "mode RGBA"),
        "sixteen bits": (saved(pillow.new("I;16", (8, 8))), "mode I;16"),
        "transparent palette": (clear, "mode P"),
        "animated": (frames, "several frames"),
    }
