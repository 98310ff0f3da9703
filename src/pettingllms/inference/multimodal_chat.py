"""Multimodal messages to ids, with the chat template of a VLM."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pettingllms.config import PolicyConfig
from pettingllms.errors import ModelError, SamplerError
from pettingllms.inference.chat import NO_KWARGS, ChatRenderer, TemplateKwargs
from pettingllms.inference.control_tokens import ControlTokens
from pettingllms.types import Ids, Image, Message, images_of
from pettingllms.vision.families import ADVICE, supports_images
from pettingllms.vision.processor import ImageProcessor, load_image_processor


def renderer_of(folder: Path, template_kwargs: TemplateKwargs = NO_KWARGS) -> ChatRenderer:
    """A renderer for a model; one that supports images if the model is a VLM."""
    kind = VisionRenderer if supports_images(folder) else ChatRenderer
    return kind(folder, template_kwargs)


def renderers_by_policy(
    folder: Path, policies: Mapping[str, PolicyConfig]
) -> list[tuple[ChatRenderer, list[str]]]:
    """The renderers of policies of one model, each with the names of its policies: one for each
    different set of `chat_template_kwargs`."""
    by_kwargs: dict[str, list[str]] = {}
    for name, policy in policies.items():
        given = getattr(policy, "chat_template_kwargs", NO_KWARGS)
        by_kwargs.setdefault(json.dumps(given, sort_keys=True), []).append(name)
    return [(renderer_of(folder, json.loads(key)), names) for key, names in by_kwargs.items()]


class VisionRenderer(ChatRenderer):
    """Renders with the model's template, with as many image tokens per image as the model needs.

    `image_processor.pixels(images)` gives the pixels, in the order of the images in the messages.
    """

    def __init__(self, folder: Path, template_kwargs: TemplateKwargs = NO_KWARGS) -> None:
        super().__init__(folder, template_kwargs)
        image_processor = load_image_processor(folder)
        if image_processor is None:
            raise ModelError(f"the model in {folder} is text-only; {ADVICE}")
        self.image_processor: ImageProcessor = image_processor
        self._image_token = str(self._tokenizer.convert_ids_to_tokens(image_processor.image_id))
        self._control = ControlTokens(self._tokenizer, also=[self._image_token])

    def _render(self, messages: tuple[Message, ...]) -> Ids:
        chat = [{"role": m.speaker, "content": _content(m)} for m in messages]
        return self.multimodal_ids(self.chat_text(chat, (), True), images_of(messages))

    def multimodal_ids(self, text: str, images: Sequence[Image]) -> Ids:
        """Ids of a rendered text, with all image tokens of its images."""
        parts = text.split(self._image_token)
        if (found := len(parts) - 1) != len(images):
            raise SamplerError(
                f"the rendered prompt has {found} image tokens for {len(images)} images; does the "
                "model's chat template leave images out?"
            )
        shown = [self.image_processor.text(image, self._image_token) for image in images]
        both = zip(parts, [*shown, ""], strict=True)
        return self.text_ids("".join(part + image for part, image in both))


def _content(message: Message) -> str | list[dict[str, Any]]:
    """The message's content for the template; images precede the text."""
    if not message.images:
        return message.text
    images: list[dict[str, Any]] = [{"type": "image"} for _ in message.images]
    return [*images, {"type": "text", "text": message.text}]
