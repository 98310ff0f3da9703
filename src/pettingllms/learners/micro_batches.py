"""How replies go through a model: cut into passes, each rank its share, rows back in order."""

# ruff: noqa: N803

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pettingllms.learners.batches import Item, Unit, UnitT, micro_batches, replies_of, together
from pettingllms.learners.hidden_states import places_read
from pettingllms.learners.policy_model import Padded
from pettingllms.learners.sharding import num_ranks, of_all_ranks, own_rank
from pettingllms.types import Values
from pettingllms.vision.processor import ImageProcessor

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Passes:
    """What learners and critics do alike with a batch."""

    max_tokens: int
    """Of one pass."""
    device: torch.device
    can_share: bool
    """Whether the model can read a prompt once for all of its replies."""
    image_processor: ImageProcessor | None

    @property
    def may_share(self) -> bool:
        """Prompts are shared on one rank alone: FSDP gathers a model once for each pass."""
        return num_ranks() == 1 and self.can_share

    def of(self, units: Sequence[UnitT]) -> list[list[UnitT]]:
        """The passes of this rank: replies of one length together, or replies to one prompt if
        less is read that way."""
        by_length = micro_batches(units, self.max_tokens, num_ranks())[own_rank()]
        if not self.may_share or any(item.images for item in replies_of(units)):
            return by_length
        return min(by_length, together(units, self.max_tokens), key=_read)

    def padded(self, items: Sequence[Item]) -> Padded:
        """Replies as the model takes them in."""
        return Padded(items, self.device, self.may_share, self.image_processor)

    def read(
        self, items: Sequence[Item], look: Callable[[Sequence[Item], Padded], Sequence[RowT]]
    ) -> list[RowT]:
        """What `look` sees in each reply of a pass, without gradients, in the order of items."""
        found: dict[int, RowT] = {}
        with torch.no_grad():
            for batch in self.of(items):
                found |= zip(map(id, batch), look(batch, self.padded(batch)), strict=True)
        return of_all_ranks(items, found)


def _read(passes: Sequence[Sequence[Unit]]) -> int:
    return sum(places_read(replies_of(units)) for units in passes)


def rows_of(items: Sequence[Item], padded_BT: Tensor, num_more: int = 0) -> list[Values]:
    """Each reply's own numbers, with some places after its last token. Copied, so that nothing
    keeps the padding in memory. A pass without replies has a row that is nobody's."""
    rows = padded_BT.float().cpu().numpy()
    return [
        row[: len(item.response_ids) + num_more].copy()
        for item, row in zip(items, rows, strict=False)
    ]
