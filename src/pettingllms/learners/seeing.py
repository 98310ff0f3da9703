"""Replies to prompts with images: pixels of all of them in one pass, each at its own places.

Replies that were sampled from one prompt show the same image: it is looked at once.

Images are put where the *prompt* has places for them. A policy may write the id of such a place
itself; in a reply it is a token like any other, as it was for the sampler.

B replies, L their longest prompt and reply together, S places that count, H hidden size.
"""

# ruff: noqa: N803, N806, N815

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.reading import at_places
from pettingllms.policies.eyes import Eyes


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The images of a pass, each once, and where in which row their pieces stand."""

    pixels: Tensor
    grid: Tensor
    of: list[int]
    """For each place of an image in the pass, which of the images stands there."""
    places_BL: Tensor
    mask_BL: Tensor


def seen_images(
    items: Sequence[Item], width: int, eyes: Eyes | None, device: torch.device
) -> Seen | None:
    """What is seen in a pass; None if nothing is."""
    images = [image for item in items for image in item.images]
    if not images:
        return None
    if eyes is None:
        raise LearnerError("a reply to an image is to be learnt from by a model that only reads")
    places, mask = np.zeros((2, len(items), width), dtype=np.bool_)
    for row, item in enumerate(items):
        places[row, : len(item.prompt_ids)] = eyes.places(item.prompt_ids, item.images)
        mask[row, : item.num_tokens] = True
    distinct = list(dict.fromkeys(images))
    number = {image: at for at, image in enumerate(distinct)}
    pixels = eyes.see(distinct)
    values, grid, places_BL, mask_BL = (
        torch.from_numpy(array).to(device) for array in (pixels.values, pixels.grid, places, mask)
    )
    return Seen(values, grid, [number[image] for image in images], places_BL, mask_BL)


def read_seen(lm: Any, seen: Seen, ids_BL: Tensor, start_B: Tensor, num_places: int) -> Tensor:
    """Prompt, images and reply in one piece. Padding stands on the right."""
    embeds_BLH = lm.get_input_embeddings()(ids_BL)
    found = lm.model.get_image_features(seen.pixels.to(embeds_BLH.dtype), seen.grid)
    pieces = torch.cat([found.pooler_output[at] for at in seen.of]).to(embeds_BLH.dtype)
    embeds_BLH = embeds_BLH.masked_scatter(seen.places_BL[..., None], pieces)
    position_ids, _ = lm.model.get_rope_index(
        ids_BL,
        mm_token_type_ids=seen.places_BL.int(),
        image_grid_thw=seen.grid[seen.of],
        attention_mask=seen.mask_BL.int(),
    )
    hidden_BLH = lm.get_decoder()(
        inputs_embeds=embeds_BLH, position_ids=position_ids, use_cache=False
    ).last_hidden_state
    return at_places(hidden_BLH, start_B, num_places)
