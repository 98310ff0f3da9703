"""The prompts and replies of a pass, as a model reads them: as token trees, or as padded rows.

Both give one hidden state per position and where the tokens of each reply are, so the rest of the
learner does not depend on which is used. Token trees read each distinct token once. Padded rows are
for models whose attention is not that of the whole prefix, and the reference of tests.

B replies, L longest prompt plus reply, P positions that are read, H hidden size.
"""

# ruff: noqa: N806

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.forest import Keys, Places, make_forest
from pettingllms.learners.tree_attention import NO_MASK, make_layout
from pettingllms.types import Image
from pettingllms.vision.embeddings import ImageEmbedder, Row, decoder_inputs, image_embedder_of
from pettingllms.vision.processor import ImageProcessor

MAX_IMAGE_TOKENS = 1 << 24
"""More than any image has, so that keys of different images differ."""


class Sequences(ABC):
    """Prompts and replies that a model reads in one pass."""

    places: list[Places]
    """For each reply, the positions of its prompt and its tokens among all that are read."""
    num_positions: int
    """Tokens that the model computes, padding included."""

    @abstractmethod
    def hidden_states(self, body: Any) -> Tensor:
        """The hidden states of all positions, (P, H). `body` is the model without its output
        layer."""


class PaddedSequences(Sequences):
    """One row per reply. Padding is on the right, where causal models ignore it."""

    def __init__(
        self, items: Sequence[Item], device: torch.device, image_processor: ImageProcessor | None
    ) -> None:
        ids_BL = _padded(items)
        width = ids_BL.shape[1]
        self.ids_BL = torch.from_numpy(ids_BL).to(device)
        self._images = _embed_images(items, width, image_processor, device)
        self.places = [row * width + np.arange(item.num_tokens) for row, item in enumerate(items)]
        self.num_positions = ids_BL.size

    def hidden_states(self, body: Any) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": self.ids_BL}
        if self._images is not None:
            inputs = decoder_inputs(body, self._images, self.ids_BL)
        hidden_BLH: Tensor = body.get_decoder()(**inputs, use_cache=False).last_hidden_state
        return hidden_BLH.flatten(0, 1)


class TreeSequences(Sequences):
    """The distinct tokens in one row; see `forest` and `tree_attention`.

    The last token of a reply is read only if its hidden state is needed, for a value."""

    def __init__(
        self,
        items: Sequence[Item],
        device: torch.device,
        image_processor: ImageProcessor | None,
        values: bool,
    ) -> None:
        self._images = _embed_images(items, _longest(items), image_processor, device)
        numbers: dict[Image, int] = {}
        sequences = [
            keys_of(item, image_processor, numbers)[: item.num_tokens - 1 + values]
            for item in items
        ]
        forest = make_forest(sequences)
        self.places, self.num_positions = forest.places, forest.num_tokens
        self._layout = make_layout(forest, device)
        self._depth_1P = torch.from_numpy(forest.depth_N).to(device)[None]
        self._no_mask = NO_MASK.to(device)
        if self._images is None:
            self._ids_1P = torch.from_numpy(forest.take(sequences)).to(device)[None]
        else:
            rows = [np.full(len(s), row) for row, s in enumerate(sequences)]
            self._row_P = torch.from_numpy(forest.take(rows)).to(device)
            self._ids_BL = torch.from_numpy(_padded(items)).to(device)

    def hidden_states(self, body: Any) -> Tensor:
        inputs: dict[str, Any]
        if self._images is None:
            inputs = {"input_ids": self._ids_1P, "position_ids": self._depth_1P}
        else:
            chosen = (self._row_P, self._depth_1P[0])
            inputs = decoder_inputs(body, self._images, self._ids_BL, chosen)
        out = body.get_decoder()(
            **inputs, attention_mask=self._no_mask, use_cache=False, tree=self._layout
        )
        hidden_1PH: Tensor = out.last_hidden_state
        return hidden_1PH[0]


def _padded(items: Sequence[Item]) -> npt.NDArray[np.int64]:
    ids = np.zeros((len(items), _longest(items)), dtype=np.int64)
    for row, item in enumerate(items):
        ids[row, : item.num_tokens] = np.concatenate([item.prompt_ids, item.response_ids])
    return ids


def _longest(items: Sequence[Item]) -> int:
    return max(item.num_tokens for item in items)


def keys_of(item: Item, image_processor: ImageProcessor | None, numbers: dict[Image, int]) -> Keys:
    """The keys of a prompt with its reply: token ids, or which part of which image a token is.

    `numbers` is filled with a number for each distinct image."""
    keys = np.concatenate([item.prompt_ids, item.response_ids]).astype(np.int64)
    if item.images and image_processor is not None:
        is_image = image_processor.image_positions(item.prompt_ids, item.images)
        parts = [
            numbers.setdefault(image, len(numbers)) * MAX_IMAGE_TOKENS
            + np.arange(image_processor.num_tokens(image))
            for image in item.images
        ]
        keys[: len(is_image)][is_image] = -1 - np.concatenate(parts)
    return keys


def _embed_images(
    items: Sequence[Item], width: int, image_processor: ImageProcessor | None, device: torch.device
) -> ImageEmbedder | None:
    """The images of a pass with their positions; None if no prompt has images."""
    if not any(item.images for item in items):
        return None
    if image_processor is None:
        raise LearnerError("a prompt has images, and the model to train is text-only")
    rows = [Row(item.prompt_ids, item.images, item.num_tokens) for item in items]
    return image_embedder_of(rows, width, image_processor, device)
