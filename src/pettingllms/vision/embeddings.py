"""Decoder inputs of a VLM: token embeddings, image embeddings and positions.

Sampler and learner share this code, so their inputs cannot differ. An image that occurs in several
prompts, such as those of one group, is encoded once.

Image embeddings replace image tokens of the *prompt*. A policy may sample the id of an image token;
in a reply it is an ordinary token.

B rows, L longest row, H hidden size.
"""

# ruff: noqa: N803, N806, N815

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.types import Ids, Image
from pettingllms.vision.processor import ImageProcessor


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A prompt with its images, and the length with its reply."""

    prompt_ids: Ids
    images: Sequence[Image]
    num_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class ImageEmbedder:
    """The distinct images of a pass, and the positions of their embeddings in each row."""

    inputs: dict[str, Tensor]
    lengths: list[int]
    """Tokens of each image."""
    image_indices: list[int]
    """Index of each image occurrence among the distinct images."""
    positions_BL: Tensor
    """True at image tokens."""
    mask_BL: Tensor


def image_embedder_of(
    rows: Sequence[Row], width: int, image_processor: ImageProcessor, device: torch.device
) -> ImageEmbedder:
    """The images of rows, which are padded on the right."""
    positions, mask = np.zeros((2, len(rows), width), dtype=np.bool_)
    for at, row in enumerate(rows):
        positions[at, : len(row.prompt_ids)] = image_processor.image_positions(
            row.prompt_ids, row.images
        )
        mask[at, : row.num_tokens] = True
    images = [image for row in rows for image in row.images]
    number = {image: at for at, image in enumerate(dict.fromkeys(images))}
    pixels = image_processor.pixels(list(number))
    arrays = {name: a[None] if image_processor.tiled else a for name, a in pixels.inputs.items()}
    return ImageEmbedder(
        {name: torch.from_numpy(array).to(device) for name, array in arrays.items()},
        pixels.lengths,
        [number[image] for image in images],
        torch.from_numpy(positions).to(device),
        torch.from_numpy(mask).to(device),
    )


def decoder_inputs(body: Any, embedder: ImageEmbedder, ids_BL: Tensor) -> dict[str, Any]:
    """The keyword arguments of the decoder. `body` is the model without its output layer."""
    embeds_BLH = body.get_input_embeddings()(ids_BL)
    inputs = dict(embedder.inputs)
    inputs["pixel_values"] = inputs["pixel_values"].to(embeds_BLH.dtype)
    found = body.get_image_features(**inputs)
    features = _by_occurrence(embedder, found.pooler_output).to(embeds_BLH.dtype)
    given = {
        "inputs_embeds": embeds_BLH.masked_scatter(embedder.positions_BL[..., None], features),
        "position_ids": _positions(body, embedder, ids_BL),
    }
    if deep := getattr(found, "deepstack_features", None):
        given["visual_pos_masks"] = embedder.positions_BL
        given["deepstack_visual_embeds"] = [_by_occurrence(embedder, layer) for layer in deep]
    return given


def _by_occurrence(embedder: ImageEmbedder, found: Any) -> Tensor:
    """Features of images, which models return by image or by tile, in the order of occurrence."""
    each = torch.split(torch.cat(list(found)), embedder.lengths)
    return torch.cat([each[at] for at in embedder.image_indices])


def _positions(body: Any, embedder: ImageEmbedder, ids_BL: Tensor) -> Tensor:
    """Position ids: one-dimensional, or for some models along time, height and width. Padding has
    0."""
    mask_BL = embedder.mask_BL.long()
    if not hasattr(body, "get_rope_index"):
        positions_BL: Tensor = (mask_BL.cumsum(dim=1) - 1) * mask_BL
        return positions_BL
    positions_3BL: Tensor
    positions_3BL, _ = body.get_rope_index(
        ids_BL,
        mm_token_type_ids=embedder.positions_BL.int(),
        image_grid_thw=embedder.inputs["image_grid_thw"][embedder.image_indices],
        attention_mask=mask_BL,
    )
    return positions_3BL
