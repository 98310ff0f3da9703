"""Micro-batches: a batch is split into forward passes per rank, and results are put in order."""

# ruff: noqa: N803

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from pettingllms.learners.batches import (
    Item,
    Unit,
    UnitT,
    group_by_prompt,
    micro_batches,
    replies_of,
)
from pettingllms.learners.hidden_states import num_computed
from pettingllms.learners.policy_model import Padded
from pettingllms.learners.sharding import gather_rows, num_ranks, own_rank
from pettingllms.types import LogProbs, Values
from pettingllms.vision.processor import ImageProcessor

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """Splits batches for learners and critics."""

    max_tokens: int
    """Tokens of one pass, padding included."""
    device: torch.device
    can_share: bool
    """Whether the model can compute a prompt once for all of its replies."""
    image_processor: ImageProcessor | None

    @property
    def may_share(self) -> bool:
        """Prompts are shared only on a single rank: FSDP gathers the model again in each pass."""
        return num_ranks() == 1 and self.can_share

    def split(self, units: Sequence[UnitT]) -> list[list[UnitT]]:
        """The micro-batches of this rank: grouped by length, or by prompt if that takes fewer
        tokens."""
        by_length = micro_batches(units, self.max_tokens, num_ranks())[own_rank()]
        if not self.may_share or any(item.images for item in replies_of(units)):
            return by_length
        return min(by_length, group_by_prompt(units, self.max_tokens), key=_num_computed)

    def padded(self, items: Sequence[Item]) -> Padded:
        """Replies as padded tensors."""
        return Padded(items, self.device, self.may_share, self.image_processor)

    def map(
        self, items: Sequence[Item], compute: Callable[[Sequence[Item], Padded], Sequence[RowT]]
    ) -> list[RowT]:
        """Apply `compute` to each micro-batch without gradients; rows in the order of the items."""
        found: dict[int, RowT] = {}
        with torch.no_grad():
            for batch in self.split(items):
                found |= zip(map(id, batch), compute(batch, self.padded(batch)), strict=True)
        return gather_rows(items, found)


def _num_computed(passes: Sequence[Sequence[Unit]]) -> int:
    return sum(num_computed(replies_of(units)) for units in passes)


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
