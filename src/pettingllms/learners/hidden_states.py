"""Hidden states at the positions that predict reply tokens: the prompt's end and each reply token.

Prompt sharing: replies that were sampled from one prompt, such as siblings in a tree, can share
its computation. If that saves enough tokens, each prompt is computed once, with its keys and values
in a cache for all of its replies.

B replies, L longest prompt plus reply, T longest reply, S positions per reply: the first is the
prompt's end, the others are reply tokens. U distinct prompts, P longest prompt, H hidden size.
"""

# ruff: noqa: N803, N806, N815

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.vision.embeddings import ImageEmbedder, Row, decoder_inputs, image_embedder_of
from pettingllms.vision.processor import ImageProcessor

MAX_SHARED_TOKENS = 0.7
"""Prompts are shared if that leaves at most this share of the tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedPrompts:
    """Distinct prompts, and the index of each reply's prompt."""

    ids_UP: Tensor
    mask_UP: Tensor
    length_U: Tensor
    prompt_of_B: Tensor
    reply_BT: Tensor


def can_share(decoder: Any) -> bool:
    """Whether a model's cache keeps every token of a prompt, padding included.

    A sliding window would count padding as tokens, and a recurrent state would have read it.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    if not hasattr(decoder, "config"):
        return False
    if "past_key_values" not in inspect.signature(decoder.forward).parameters:
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=decoder.config).layers)


def num_computed(items: Sequence[Item]) -> int:
    """Tokens that a forward pass computes, padding included, with shared prompts if useful."""
    whole, shared = _whole_and_shared(items)
    return shared if shared <= MAX_SHARED_TOKENS * whole else whole


def _whole_and_shared(items: Sequence[Item]) -> tuple[int, int]:
    prompts = {item.prompt_ids.tobytes(): len(item.prompt_ids) for item in items}
    longest = max(len(item.response_ids) for item in items)
    whole = len(items) * max(item.num_tokens for item in items)
    return whole, len(prompts) * max(prompts.values()) + len(items) * longest


def shared_prompts(items: Sequence[Item], device: torch.device) -> SharedPrompts | None:
    """The distinct prompts of a pass; None if sharing saves too little for the second
    forward pass that it takes."""
    whole, shared = _whole_and_shared(items)
    if shared > MAX_SHARED_TOKENS * whole:
        return None
    prompts = {item.prompt_ids.tobytes(): item.prompt_ids for item in items}
    unique = list(prompts.values())
    row_of = {prompt: row for row, prompt in enumerate(prompts)}
    of = [row_of[item.prompt_ids.tobytes()] for item in items]
    widest = max(map(len, unique))
    longest = max(len(item.response_ids) for item in items)
    ids = np.zeros((len(unique), widest), dtype=np.int64)
    mask = np.zeros((len(unique), widest), dtype=np.int64)
    replies = np.zeros((len(items), longest), dtype=np.int64)
    for row, prompt in enumerate(unique):
        ids[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
    for row, item in enumerate(items):
        replies[row, : len(item.response_ids)] = item.response_ids
    arrays = (ids, mask, np.array(list(map(len, unique))), np.array(of), replies)
    return SharedPrompts(*(torch.from_numpy(array).to(device) for array in arrays))


def unshared_states(decoder: Any, ids_BL: Tensor, start_B: Tensor, num_positions: int) -> Tensor:
    """Prompt and reply in one sequence. Padding is on the right, where causal models ignore it."""
    hidden_BLH = decoder(input_ids=ids_BL, use_cache=False).last_hidden_state
    return _reply_states(hidden_BLH, start_B, num_positions)


def _reply_states(hidden_BLH: Tensor, start_B: Tensor, num_positions: int) -> Tensor:
    """The first `num_positions` positions of each row, from the prompt's last token on."""
    row_B1 = torch.arange(len(start_B), device=start_B.device)[:, None]
    at_BS = start_B[:, None] - 1 + torch.arange(num_positions, device=start_B.device)
    hidden_BSH: Tensor = hidden_BLH[row_B1, at_BS.clamp(max=hidden_BLH.shape[1] - 1)]
    return hidden_BSH


def shared_states(decoder: Any, shared: SharedPrompts, num_positions: int) -> Tensor:
    """Compute each prompt once and copy its keys and values to all of its replies.

    Gradients flow back through the cache. Padding inside it is masked.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=decoder.config)
    hidden_UPH = decoder(
        input_ids=shared.ids_UP,
        attention_mask=shared.mask_UP,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    last_B = shared.length_U[shared.prompt_of_B] - 1
    end_B1H: Tensor = hidden_UPH[shared.prompt_of_B, last_B][:, None]
    ids_BS = shared.reply_BT[:, : num_positions - 1]
    if not ids_BS.shape[1]:
        return end_B1H
    cache.batch_select_indices(shared.prompt_of_B)
    at_S = torch.arange(1, ids_BS.shape[1] + 1, device=ids_BS.device)
    mask_BL = torch.cat([shared.mask_UP[shared.prompt_of_B], torch.ones_like(ids_BS)], dim=1)
    later_BSH = decoder(
        input_ids=ids_BS,
        attention_mask=mask_BL,
        position_ids=last_B[:, None] + at_S,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return torch.cat([end_B1H, later_BSH], dim=1)


def embed_images(
    items: Sequence[Item], width: int, image_processor: ImageProcessor | None, device: torch.device
) -> ImageEmbedder | None:
    """The images of a pass with their positions; None if no prompt has images."""
    if not any(item.images for item in items):
        return None
    if image_processor is None:
        raise LearnerError("a prompt has images, and the model to train is text-only")
    rows = [Row(item.prompt_ids, item.images, item.num_tokens) for item in items]
    return image_embedder_of(rows, width, image_processor, device)


def multimodal_states(
    body: Any, images: ImageEmbedder, ids_BL: Tensor, start_B: Tensor, num_positions: int
) -> Tensor:
    """Prompt, images and reply in one sequence. Padding is on the right."""
    inputs = decoder_inputs(body, images, ids_BL)
    hidden_BLH = body.get_decoder()(**inputs, use_cache=False).last_hidden_state
    return _reply_states(hidden_BLH, start_B, num_positions)
