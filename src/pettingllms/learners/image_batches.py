"""Replies to prompts with images: pixels of all of them in one pass, each at its own places.

B replies, L their longest prompt and reply together, S places that count, H hidden size.
"""

# ruff: noqa: N803, N806

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.hidden_states import at_places
from pettingllms.vision.embeddings import ImageEmbedder, Row, decoder_inputs, image_embedder_of
from pettingllms.vision.processor import ImageProcessor


def seen_images(
    items: Sequence[Item], width: int, image_processor: ImageProcessor | None, device: torch.device
) -> ImageEmbedder | None:
    """What is seen in a pass; None if nothing is."""
    if not any(item.images for item in items):
        return None
    if image_processor is None:
        raise LearnerError("a reply to an image is to be learnt from by a model that only reads")
    rows = [Row(item.prompt_ids, item.images, item.num_tokens) for item in items]
    return image_embedder_of(rows, width, image_processor, device)


def read_seen(
    body: Any, seen: ImageEmbedder, ids_BL: Tensor, start_B: Tensor, num_places: int
) -> Tensor:
    """Prompt, images and reply in one piece. Padding stands on the right."""
    given = decoder_inputs(body, seen, ids_BL)
    hidden_BLH = body.get_decoder()(**given, use_cache=False).last_hidden_state
    return at_places(hidden_BLH, start_B, num_places)
