"""What a message holds, as the vendors' clients send it: text, and images between it.

An image comes as the bytes of its file, in base64. Nothing is fetched on a caller's behalf: an
address would be opened from this machine, with this machine's rights, and what it gives may be
another picture the next time, so that no record could say what was seen. Whether the bytes are an
image is not looked at here.
"""

import base64
import binascii
from collections.abc import Sequence

from pettingllms.gateway.calls import CallError, Placed
from pettingllms.gateway.dialects.base import Body, Listed
from pettingllms.types import Image

IMAGES = ("image_url", "input_image", "image")
"""Parts that are images: in OpenAI's chats, in its responses, in Anthropic's messages."""
HOW = "send the PNG file itself, in base64"


class ImageUrl(Body):
    """Where an image is."""

    url: str


class ImageSource(Body):
    """An image, or where it is."""

    type: str
    data: str | None = None


class ContentPart(Body):
    """A part of a message's content: text or an image."""

    type: str
    text: str | None = None
    image_url: str | ImageUrl | None = None
    source: ImageSource | None = None


Content = str | Listed[ContentPart]


def read_content(
    content: str | Sequence[ContentPart] | None, param: str = "messages"
) -> tuple[str, tuple[Placed, ...]]:
    """The text of a message, and the images in it."""
    if content is None or isinstance(content, str):
        return content or "", ()
    text, images = "", []
    for part in content:
        if part.type in IMAGES:
            images.append(Placed(len(text), _image(part, param)))
        elif part.text is not None and "text" in part.type:
            text += part.text
        else:
            raise CallError(
                400, f"a part of the content is '{part.type[:40]}'; text and images are read", param
            )
    return text, tuple(images)


def read_text(content: str | Sequence[ContentPart] | None, param: str) -> str:
    """The text of what has a place for no image."""
    text, images = read_content(content, param)
    if images:
        raise CallError(400, f"'{param}' has a place for text alone, and holds an image", param)
    return text


def _image(part: ContentPart, param: str) -> Image:
    data = _base64(part, param)
    try:
        return Image(base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise CallError(400, f"an image is no base64: {error}; {HOW}", param) from None


def _base64(part: ContentPart, param: str) -> str:
    """The part's file as the client wrote it."""
    if part.source is not None:
        if part.source.type == "base64" and part.source.data is not None:
            return part.source.data
        raise _not_here(f"source of the type '{part.source.type[:40]}'", param)
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if url is None:
        raise _not_here(f"'{part.type}' without its data", param)
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "data":
        raise _not_here(f"address ({scheme[:8]}...)", param)
    head, comma, data = rest.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise CallError(400, f"an image is a data URL without ';base64,'; {HOW}", param)
    return data


def _not_here(what: str, param: str) -> CallError:
    return CallError(
        400, f"an image is an {what}; nothing is fetched on a caller's behalf: {HOW}", param
    )
