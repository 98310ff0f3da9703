"""Parses message content of the vendors' APIs: text and images.

Images must be base64-encoded files. The gateway never fetches URLs: a request would run with this
machine's permissions, and the image behind a URL may change, so that a record would not show what
the model saw. Images are decoded later.
"""

import base64
import binascii
from collections.abc import Sequence

from pettingllms.gateway.calls import CallError, Placed
from pettingllms.gateway.dialects.base import Body, Listed
from pettingllms.types import Image

IMAGE_TYPES = ("image_url", "input_image", "image")
"""Image parts of OpenAI's Chat Completions and Responses and of Anthropic's Messages."""
ADVICE = "send the PNG file in base64"


class ImageUrl(Body):
    """The URL of an image."""

    url: str


class ImageSource(Body):
    """The source of an image."""

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
    """Split content into text and images."""
    if content is None or isinstance(content, str):
        return content or "", ()
    text, images = "", []
    for part in content:
        if part.type in IMAGE_TYPES:
            images.append(Placed(len(text), _image(part, param)))
        elif part.text is not None and "text" in part.type:
            text += part.text
        else:
            raise CallError(
                400, f"unsupported content type '{part.type[:40]}'; send text or images", param
            )
    return text, tuple(images)


def read_text(content: str | Sequence[ContentPart] | None, param: str) -> str:
    """The text of content that must not contain images."""
    text, images = read_content(content, param)
    if images:
        raise CallError(
            400, f"'{param}' contains an image, but only text is supported there", param
        )
    return text


def _image(part: ContentPart, param: str) -> Image:
    data = _base64(part, param)
    try:
        return Image(base64.b64decode(data, validate=True))
    except binascii.Error as error:
        raise CallError(400, f"an image is not valid base64: {error}; {ADVICE}", param) from None


def _base64(part: ContentPart, param: str) -> str:
    """The base64 data of an image part."""
    if part.source is not None:
        if part.source.type == "base64" and part.source.data is not None:
            return part.source.data
        raise _unsupported(f"source type '{part.source.type[:40]}'", param)
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    if url is None:
        raise _unsupported(f"'{part.type}' part without data", param)
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "data":
        raise _unsupported(f"URL ({scheme[:8]}...)", param)
    head, comma, data = rest.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise CallError(400, f"an image's data URL has no ';base64,'; {ADVICE}", param)
    return data


def _unsupported(what: str, param: str) -> CallError:
    return CallError(400, f"unsupported image {what}; images are not fetched: {ADVICE}", param)
