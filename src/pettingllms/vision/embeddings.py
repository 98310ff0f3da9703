"""What a model that sees is given in the place of ids: words, pieces of images, their positions.

Sampler and learner ask the same code, so they cannot come to see differently. An image that stands
in several prompts, as it does in those of one group, is looked at once.

Images are put where the *prompt* has places for them. A policy may write the id of such a place
itself; in a reply it is a token like any other.

B rows, L their longest, H hidden size.
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
    """A prompt with its images, and what may stand behind it."""

    prompt_ids: Ids
    images: Sequence[Image]
    num_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class ImageEmbedder:
    """The images of a pass, each once, and where in which row their pieces stand."""

    inputs: dict[str, Tensor]
    lengths: list[int]
    """Tokens of each image."""
    of: list[int]
    """For each time that an image is shown, which one it is."""
    places_BL: Tensor
    mask_BL: Tensor


def image_embedder_of(
    rows: Sequence[Row], width: int, image_processor: ImageProcessor, device: torch.device
) -> ImageEmbedder:
    """What is seen in rows, which are padded on the right."""
    places, mask = np.zeros((2, len(rows), width), dtype=np.bool_)
    for at, row in enumerate(rows):
        places[at, : len(row.prompt_ids)] = image_processor.places(row.prompt_ids, row.images)
        mask[at, : row.num_tokens] = True
    images = [image for row in rows for image in row.images]
    number = {image: at for at, image in enumerate(dict.fromkeys(images))}
    pixels = image_processor.see(list(number))
    arrays = {name: a[None] if image_processor.tiled else a for name, a in pixels.inputs.items()}
    return ImageEmbedder(
        {name: torch.from_numpy(array).to(device) for name, array in arrays.items()},
        pixels.lengths,
        [number[image] for image in images],
        torch.from_numpy(places).to(device),
        torch.from_numpy(mask).to(device),
    )


def decoder_inputs(body: Any, embedder: ImageEmbedder, ids_BL: Tensor) -> dict[str, Any]:
    """What the decoder of a model is called with. `body` is the model without its last layer."""
    embeds_BLH = body.get_input_embeddings()(ids_BL)
    inputs = dict(embedder.inputs)
    inputs["pixel_values"] = inputs["pixel_values"].to(embeds_BLH.dtype)
    found = body.get_image_features(**inputs)
    pieces = _shown(embedder, found.pooler_output).to(embeds_BLH.dtype)
    given = {
        "inputs_embeds": embeds_BLH.masked_scatter(embedder.places_BL[..., None], pieces),
        "position_ids": _positions(body, embedder, ids_BL),
    }
    if deep := getattr(found, "deepstack_features", None):
        given["visual_pos_masks"] = embedder.places_BL
        given["deepstack_visual_embeds"] = [_shown(embedder, layer) for layer in deep]
    return given


def _shown(embedder: ImageEmbedder, found: Any) -> Tensor:
    """Features of images, which models give by image or by tile, in the order of their places."""
    each = torch.split(torch.cat(list(found)), embedder.lengths)
    return torch.cat([each[at] for at in embedder.of])


def _positions(body: Any, embedder: ImageEmbedder, ids_BL: Tensor) -> Tensor:
    """Where tokens stand: along a line, or for some models in the plane of each image. Padding is
    at 0."""
    mask_BL = embedder.mask_BL.long()
    if not hasattr(body, "get_rope_index"):
        positions_BL: Tensor = (mask_BL.cumsum(dim=1) - 1) * mask_BL
        return positions_BL
    positions_3BL: Tensor
    positions_3BL, _ = body.get_rope_index(
        ids_BL,
        mm_token_type_ids=embedder.places_BL.int(),
        image_grid_thw=embedder.inputs["image_grid_thw"][embedder.of],
        attention_mask=mask_BL,
    )
    return positions_3BL
