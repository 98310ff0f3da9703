"""What a learner made of a batch before it learnt from it, kept for those who read episodes."""

# ruff: noqa: N803

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from pettingllms.learners.batches import Item
from pettingllms.learners.micro_batches import rows_of
from pettingllms.types import LogProbs


@dataclass(slots=True)
class Before:
    """Log-probs of a batch, as the learner gives them before it learns from it."""

    items: Sequence[Item]
    found: dict[int, LogProbs] = field(default_factory=dict)
    """By the item's id."""

    def add(self, batch: Sequence[Item], logp_BT: Tensor) -> None:
        """Take those of some items; a later epoch brings the same again."""
        self.found |= zip(map(id, batch), rows_of(batch, logp_BT), strict=True)
