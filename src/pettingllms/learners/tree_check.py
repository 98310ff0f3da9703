"""Compare token trees with padded rows when a model is loaded.

Token trees rely on the attention function that Transformers calls, with the arguments that it
passes. A model family may have attention code that ignores them. So the learner does not look for
names: it reads a few short sequences in both forms. All ranks take part and get the same result.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.learners.batches import Item
from pettingllms.learners.micro_batches import MicroBatches
from pettingllms.learners.reply_batch import ReplyBatch
from pettingllms.learners.tree_attention import UnsupportedAttentionError
from pettingllms.types import Ids

TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Largest mean difference relative to the standard deviation. In bfloat16, rounding causes 0.03 in
SmolLM2, and attention to tokens of other branches 0.3."""
Read = Callable[[ReplyBatch], Tensor]


def checked(
    micro_batches: MicroBatches,
    read: Read,
    dtype: torch.dtype,
    config: Any,
) -> tuple[MicroBatches, str]:
    """Micro-batches in a form that the model reads correctly, and why not as token trees, or ""."""
    padded, family = replace(micro_batches, use_trees=False), config.model_type
    if not micro_batches.use_trees:
        return padded, _notice(family, "its layers do not all attend to the whole prefix")
    items = sequences(config.get_text_config().vocab_size)
    try:
        with torch.no_grad():
            rows, trees = (
                read(micro_batches.batch(items, as_trees)).float() for as_trees in (False, True)
            )
    except UnsupportedAttentionError as error:
        return padded, _notice(family, str(error))
    difference = float((rows - trees).abs().mean() / rows.std())
    if difference <= TOLERANCES[dtype]:
        return micro_batches, ""
    found = f"its outputs differ by {difference:.2g} standard deviations from those of padded rows"
    return padded, _notice(family, found)


def _notice(family: str, reason: str) -> str:
    return (
        f"{family} models cannot read token trees: {reason}. The learner reads padded rows instead,"
        " so shared prompts are computed once per reply; expect slower learning"
    )


def sequences(vocab_size: int) -> list[Item]:
    """Two turns of a dialogue, siblings of both, and an unrelated reply, of tokens from the whole
    vocabulary: control tokens, which are the first of some, have erratic log-probs."""
    rng = np.random.default_rng(0)
    tokens, other = rng.integers(0, vocab_size, (2, 24)).astype(np.int32)
    return [
        _item(tokens[:6], tokens[6:12]),
        _item(tokens[:6], other[:5]),
        _item(tokens[:16], tokens[16:24]),
        _item(tokens[:16], other[5:9]),
        _item(other[9:17], other[17:24]),
    ]


def _item(prompt: Ids, reply: Ids) -> Item:
    return Item(prompt, reply, np.zeros(len(reply), np.float32), 0.0)
