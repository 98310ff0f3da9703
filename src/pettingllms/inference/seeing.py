"""Prompts with images, read into a cache by the model's own forward pass.

A model that sees counts positions otherwise than tokens: an image is as wide as its longer side. So
whoever writes on behind a prompt must be told where it ends.

U prompts, L their padded length, H hidden size.
"""

# ruff: noqa: N806

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import SamplerError
from pettingllms.policies.eyes import Eyes
from pettingllms.types import Ids, Image


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a model reads before it replies."""

    ids: Ids
    images: tuple[Image, ...] = ()

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal exactly where prompts are."""
        return (self.ids.tobytes(), *(image.data for image in self.images))


def read_seen(
    lm: Any, eyes: Eyes | None, prompts: Sequence[Prompt], cache: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What the model has in mind after each prompt, which places of the cache count, and the
    position of what comes next. Padding stands on the right."""
    if eyes is None:
        raise SamplerError("an image is to be shown to a model that only reads")
    longest = max(len(prompt.ids) for prompt in prompts)
    ids_UL, mask_UL, places_UL = np.zeros((3, len(prompts), longest), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        end = len(prompt.ids)
        ids_UL[row, :end], mask_UL[row, :end] = prompt.ids, 1
        places_UL[row, :end] = eyes.places(prompt.ids, prompt.images)
    pixels = eyes.see([image for prompt in prompts for image in prompt.images])
    ids, mask, places = map(torch.from_numpy, (ids_UL, mask_UL, places_UL))
    grid = torch.from_numpy(pixels.grid)
    positions_3UL, _ = lm.model.get_rope_index(
        ids, mm_token_type_ids=places.int(), image_grid_thw=grid, attention_mask=mask
    )
    hidden_ULH = lm.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions_3UL,
        past_key_values=cache,
        use_cache=True,
        pixel_values=torch.from_numpy(pixels.values).to(lm.dtype),
        image_grid_thw=grid,
    ).last_hidden_state
    last_U = torch.tensor([len(prompt.ids) - 1 for prompt in prompts])
    next_U = positions_3UL.amax(dim=(0, 2)) + 1
    return hidden_ULH[torch.arange(len(prompts)), last_U], mask, next_U
