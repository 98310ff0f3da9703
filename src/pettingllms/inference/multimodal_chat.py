"""Messages with images to ids, as a model that sees was taught to read them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pettingllms.errors import ModelError, SamplerError
from pettingllms.inference.chat import ChatRenderer
from pettingllms.inference.control_tokens import ControlTokens
from pettingllms.types import Ids, Image, Message, images_of
from pettingllms.vision.processor import ImageProcessor, load_image_processor
from pettingllms.vision.support import ADVICE, supports_images


def renderer_of(folder: Path) -> ChatRenderer:
    """A renderer that shows images, if the model can be shown any."""
    return VisionRenderer(folder) if supports_images(folder) else ChatRenderer(folder)


class VisionRenderer(ChatRenderer):
    """Renders by the model's template, with as many places for each image as the model looks at.

    The pixels themselves are `eyes.see(images)`, in the order in which messages show the images.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        image_processor = load_image_processor(folder)
        if image_processor is None:
            raise ModelError(f"the model in {folder} only reads; {ADVICE}")
        self.image_processor: ImageProcessor = image_processor
        self._sign = str(self._tokenizer.convert_ids_to_tokens(image_processor.image_id))
        self._control = ControlTokens(self._tokenizer, also=[self._sign])

    def _render(self, messages: tuple[Message, ...]) -> Ids:
        chat = [{"role": m.speaker, "content": _content(m)} for m in messages]
        return self.seen_ids(self.chat_text(chat, (), True), images_of(messages))

    def seen_ids(self, text: str, images: Sequence[Image]) -> Ids:
        """Ids of a text by the template, with all the places of the images that it shows."""
        parts = text.split(self._sign)
        if (found := len(parts) - 1) != len(images):
            raise SamplerError(
                f"the prompt has {found} places for {len(images)} images; does the model's chat "
                "template leave images out?"
            )
        shown = [self.image_processor.text(image, self._sign) for image in images]
        both = zip(parts, [*shown, ""], strict=True)
        return self.text_ids("".join(part + image for part, image in both))


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Text alone as it is for models that read; images stand before the text."""
    if not message.images:
        return message.text
    images: list[dict[str, Any]] = [{"type": "image"} for _ in message.images]
    return [*images, {"type": "text", "text": message.text}]
