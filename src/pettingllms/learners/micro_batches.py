"""Micro-batches: a batch is split into forward passes per rank, and results are put in order."""

# ruff: noqa: N803

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from pettingllms.learners.batches import Item, UnitT
from pettingllms.learners.packing import pack_rows, pack_trees
from pettingllms.learners.reply_batch import PADDING, ReplyBatch
from pettingllms.learners.sequences import PaddedSequences, Sequences, TreeSequences, keys_of
from pettingllms.learners.sharding import gather_rows, num_ranks, own_rank
from pettingllms.runtime.progress import tick
from pettingllms.types import Image, LogProbs, Values
from pettingllms.vision.processor import ImageProcessor

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """Splits batches for learners and critics."""

    max_tokens: int
    """Tokens of one pass: distinct tokens of token trees, or tokens of rows with padding."""
    device: torch.device
    use_trees: bool
    """Whether the model reads token trees, or padded rows."""
    values: bool
    """Whether the last token of each reply needs a value."""
    image_processor: ImageProcessor | None

    def split(self, units: Sequence[UnitT]) -> list[list[UnitT]]:
        """The micro-batches of this rank."""
        if not self.use_trees:
            return pack_rows(units, self.max_tokens, num_ranks())[own_rank()]
        numbers: dict[Image, int] = {}
        passes = pack_trees(
            units,
            self.max_tokens,
            num_ranks(),
            lambda item: keys_of(item, self.image_processor, numbers),
        )
        return passes[own_rank()]

    def batch(self, items: Sequence[Item], as_trees: bool | None = None) -> ReplyBatch:
        """The replies of a pass; `as_trees` overrides how the model reads them."""
        tick()
        given, use_trees = items or [PADDING], self.use_trees if as_trees is None else as_trees
        sequences: Sequences = (
            TreeSequences(given, self.device, self.image_processor, self.values)
            if use_trees
            else PaddedSequences(given, self.device, self.image_processor)
        )
        return ReplyBatch(items, sequences, self.device)

    def map(
        self, items: Sequence[Item], compute: Callable[[Sequence[Item], ReplyBatch], Sequence[RowT]]
    ) -> list[RowT]:
        """Apply `compute` to each micro-batch without gradients; rows in the order of the items."""
        found: dict[int, RowT] = {}
        with torch.no_grad():
            for batch in self.split(items):
                found |= zip(map(id, batch), compute(batch, self.batch(batch)), strict=True)
        return gather_rows(items, found)


def rows_of(items: Sequence[Item], padded_BT: Tensor, num_more: int = 0) -> list[Values]:
    """Each reply's row without padding, with `num_more` entries after its last token. Rows are
    copied to free the padded tensor. A pass without replies has one row of padding."""
    rows = padded_BT.float().cpu().numpy()
    return [
        row[: len(item.response_ids) + num_more].copy()
        for item, row in zip(items, rows, strict=False)
    ]


@dataclass(slots=True)
class KeptLogProbs:
    """Log-probs of a batch before its first update, to be written with the episodes."""

    items: Sequence[Item]
    found: dict[int, LogProbs] = field(default_factory=dict)
    """By the item's id."""

    def add(self, batch: Sequence[Item], logp_BT: Tensor) -> None:
        """Add those of some items; later epochs bring the same again."""
        self.found |= zip(map(id, batch), rows_of(batch, logp_BT), strict=True)
