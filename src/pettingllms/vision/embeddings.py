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
import numpy.typing as npt
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
    image_indices: list[int]
    """Index of each image occurrence among the distinct images."""
    feature_rows: npt.NDArray[np.int64]
    """For each token of the rows the number of its embedding among those of the distinct images; -1
    for tokens that are not image tokens."""
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
    starts = np.cumsum([0, *pixels.lengths])
    indices = [number[image] for image in images]
    feature_rows = np.full(positions.shape, -1, dtype=np.int64)
    if indices:
        parts = [np.arange(starts[at], starts[at + 1]) for at in indices]
        feature_rows[positions] = np.concatenate(parts)
    arrays = {name: a[None] if image_processor.tiled else a for name, a in pixels.inputs.items()}
    return ImageEmbedder(
        {name: torch.from_numpy(array).to(device) for name, array in arrays.items()},
        indices,
        feature_rows,
        torch.from_numpy(positions).to(device),
        torch.from_numpy(mask).to(device),
    )


def decoder_inputs(
    body: Any,
    embedder: ImageEmbedder,
    ids_BL: Tensor,
    chosen: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Any]:
    """The keyword arguments of the decoder. `body` is the model without its output layer.

    `chosen`: rows and columns of the tokens to read, as one row; by default all rows as they are.
    """
    features_BL = torch.from_numpy(embedder.feature_rows).to(ids_BL.device)
    position_ids = _positions(body, embedder, ids_BL)
    if chosen is not None:
        position_ids = position_ids[..., *chosen].unsqueeze(-2)
        ids_BL, features_BL = ids_BL[chosen][None], features_BL[chosen][None]
    embeds_BLH = body.get_input_embeddings()(ids_BL)
    inputs = dict(embedder.inputs)
    inputs["pixel_values"] = inputs["pixel_values"].to(embeds_BLH.dtype)
    found = body.get_image_features(**inputs)
    is_image_BL = features_BL >= 0
    rows = features_BL[is_image_BL]
    features = torch.cat(list(found.pooler_output))[rows].to(embeds_BLH.dtype)
    given = {
        "inputs_embeds": embeds_BLH.masked_scatter(is_image_BL[..., None], features),
        "position_ids": position_ids,
    }
    if deep := getattr(found, "deepstack_features", None):
        given["visual_pos_masks"] = is_image_BL
        given["deepstack_visual_embeds"] = [torch.cat(list(layer))[rows] for layer in deep]
    return given


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
