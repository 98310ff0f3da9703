"""Prefill of multimodal prompts.

Some VLMs count positions differently from tokens: an image takes as many positions as its longer
side. So the prefill also returns the next position of each prompt.

U prompts, L padded length, H hidden size.
"""

# ruff: noqa: N806

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import SamplerError
from pettingllms.types import Ids, Image
from pettingllms.vision.embeddings import Row, decoder_inputs, image_embedder_of
from pettingllms.vision.processor import ImageProcessor


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A prompt with its images."""

    ids: Ids
    images: tuple[Image, ...] = ()

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal if and only if prompts are."""
        return (self.ids.tobytes(), *(image.data for image in self.images))


def prefill_images(
    lm: Any, image_processor: ImageProcessor | None, prompts: Sequence[Prompt], cache: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The last hidden state of each prompt, the attention mask of the cache, and the next position.
    Padding is on the right."""
    if image_processor is None:
        raise SamplerError("a prompt has images, and the model is text-only")
    longest = max(len(prompt.ids) for prompt in prompts)
    ids_UL = np.zeros((len(prompts), longest), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        ids_UL[row, : len(prompt.ids)] = prompt.ids
    rows = [Row(prompt.ids, prompt.images, len(prompt.ids)) for prompt in prompts]
    embedder = image_embedder_of(rows, longest, image_processor, lm.device)
    given = decoder_inputs(lm.model, embedder, torch.from_numpy(ids_UL))
    mask_UL = embedder.mask_BL.long()
    hidden_ULH = lm.get_decoder()(
        **given, attention_mask=mask_UL, past_key_values=cache, use_cache=True
    ).last_hidden_state
    last_U = torch.tensor([len(prompt.ids) - 1 for prompt in prompts])
    # The row's greatest position along any axis.
    highest_UL = given["position_ids"].view(-1, *ids_UL.shape).amax(dim=0)
    return hidden_ULH[torch.arange(len(prompts)), last_U], mask_UL, highest_UL.amax(dim=1) + 1
