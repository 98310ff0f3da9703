"""What a model has in mind at the places that count: where a prompt ends, and after reply tokens.

Replies that were sampled from one prompt, as the siblings of a decision are, share it: where that
saves enough, prompts are read once each, and replies behind them.

B replies, L their longest prompt and reply together, T their longest reply, S places of each: the
first is the prompt's end, the others follow its tokens. U prompts that differ, P the longest of
them, H hidden size.
"""

# ruff: noqa: N803, N806, N815

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.learners.batches import Item

WORTH_SHARING = 0.7
"""Share of the tokens that may be left for prompts to be read once each."""


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Prompts that differ, and which one each reply answers."""

    ids_UP: Tensor
    mask_UP: Tensor
    length_U: Tensor
    of_B: Tensor
    reply_BT: Tensor


def can_share(decoder: Any) -> bool:
    """Whether a model's cache has a place for every token of a prompt, padding included.

    A sliding window counts the holes that padding leaves as if they were tokens, and a state that
    is carried along has read them.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    if not hasattr(decoder, "config"):
        return False
    if "past_key_values" not in inspect.signature(decoder.forward).parameters:
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=decoder.config).layers)


def places_read(items: Sequence[Item]) -> int:
    """Tokens that a pass over replies takes, padding included, if prompts may be shared in it."""
    whole, shared = _whole_and_shared(items)
    return shared if shared <= WORTH_SHARING * whole else whole


def _whole_and_shared(items: Sequence[Item]) -> tuple[int, int]:
    prompts = {item.prompt_ids.tobytes(): len(item.prompt_ids) for item in items}
    longest = max(len(item.response_ids) for item in items)
    whole = len(items) * max(item.num_tokens for item in items)
    return whole, len(prompts) * max(prompts.values()) + len(items) * longest


def shared_prompts(items: Sequence[Item], device: torch.device) -> Shared | None:
    """The prompts of a pass, each once; None if reading replies behind them would save too little
    for the second pass that it takes."""
    whole, shared = _whole_and_shared(items)
    if shared > WORTH_SHARING * whole:
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
    return Shared(*(torch.from_numpy(array).to(device) for array in arrays))


def read_whole(decoder: Any, ids_BL: Tensor, start_B: Tensor, num_places: int) -> Tensor:
    """Prompt and reply in one piece. Padding stands on the right, where no causal model sees it."""
    hidden_BLH = decoder(input_ids=ids_BL, use_cache=False).last_hidden_state
    return at_places(hidden_BLH, start_B, num_places)


def at_places(hidden_BLH: Tensor, start_B: Tensor, num_places: int) -> Tensor:
    """From each prompt's last token on, so many places of each row."""
    row_B1 = torch.arange(len(start_B), device=start_B.device)[:, None]
    at_BS = start_B[:, None] - 1 + torch.arange(num_places, device=start_B.device)
    hidden_BSH: Tensor = hidden_BLH[row_B1, at_BS.clamp(max=hidden_BLH.shape[1] - 1)]
    return hidden_BSH


def read_shared(decoder: Any, shared: Shared, num_places: int) -> Tensor:
    """Each prompt once: what it left in the cache goes to all of its replies.

    Gradients flow back through the cache. The holes that padding leaves in it are masked.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=decoder.config)
    hidden_UPH = decoder(
        input_ids=shared.ids_UP,
        attention_mask=shared.mask_UP,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    last_B = shared.length_U[shared.of_B] - 1
    end_B1H: Tensor = hidden_UPH[shared.of_B, last_B][:, None]
    ids_BS = shared.reply_BT[:, : num_places - 1]
    if not ids_BS.shape[1]:
        return end_B1H
    cache.batch_select_indices(shared.of_B)
    at_S = torch.arange(1, ids_BS.shape[1] + 1, device=ids_BS.device)
    mask_BL = torch.cat([shared.mask_UP[shared.of_B], torch.ones_like(ids_BS)], dim=1)
    later_BSH = decoder(
        input_ids=ids_BS,
        attention_mask=mask_BL,
        position_ids=last_B[:, None] + at_S,
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return torch.cat([end_B1H, later_BSH], dim=1)
