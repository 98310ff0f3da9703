"""How replies go through a model: cut into passes, each rank its share, rows back in order."""

# ruff: noqa: N803

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pettingllms.learners.batches import Item, UnitT, micro_batches
from pettingllms.learners.model import Padded
from pettingllms.learners.sharding import num_ranks, of_all_ranks, own_rank
from pettingllms.policies.eyes import Eyes
from pettingllms.types import Values

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Passes:
    """What learners and critics do alike with a batch."""

    max_tokens: int
    """Of one pass."""
    device: torch.device
    can_share: bool
    """Whether the model can read a prompt once for all of its replies."""
    eyes: Eyes | None

    def of(self, units: Sequence[UnitT]) -> list[list[UnitT]]:
        """The passes of this rank."""
        return micro_batches(units, self.max_tokens, num_ranks())[own_rank()]

    def padded(self, items: Sequence[Item]) -> Padded:
        """Prompts are shared on one rank alone: FSDP gathers a model once for each pass."""
        may_share = num_ranks() == 1 and self.can_share
        return Padded(items, self.device, may_share, self.eyes)

    def read(
        self, items: Sequence[Item], look: Callable[[Sequence[Item], Padded], Sequence[RowT]]
    ) -> list[RowT]:
        """What `look` sees in each reply of a pass, without gradients, in the order of items."""
        found: dict[int, RowT] = {}
        with torch.no_grad():
            for batch in self.of(items):
                found |= zip(map(id, batch), look(batch, self.padded(batch)), strict=True)
        return of_all_ranks(items, found)


def rows_of(items: Sequence[Item], padded_BT: Tensor, num_more: int = 0) -> list[Values]:
    """Each reply's own numbers, with some places after its last token. Copied, so that nothing
    keeps the padding in memory. A pass without replies has a row that is nobody's."""
    rows = padded_BT.float().cpu().numpy()
    return [
        row[: len(item.response_ids) + num_more].copy()
        for item, row in zip(items, rows, strict=False)
    ]
