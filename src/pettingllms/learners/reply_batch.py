"""The replies of a pass: tensors with one row per reply, and the hidden states they need.

B replies in a pass, T longest reply, N reply tokens in all, U distinct predictions, S = T + 1 value
positions per reply, M value positions in all, P positions that the model reads.
"""

# ruff: noqa: N802, N803, N806

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pettingllms.learners.batches import Item
from pettingllms.learners.forest import Places
from pettingllms.learners.sequences import Sequences
from pettingllms.types import Values

PADDING = Item(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.float32), advantage=0.0)
"""What a pass without replies reads; its token is outside the mask."""


class ReplyBatch:
    """Replies with their advantages and log-probs, padded to one row each."""

    def __init__(self, items: Sequence[Item], sequences: Sequences, device: torch.device) -> None:
        self.sequences = sequences
        self._items, self._device = list(items) or [PADDING], device
        lengths = [len(item.response_ids) for item in self._items]
        shape = (len(lengths), max(lengths))
        inside = np.arange(shape[1]) < np.array(lengths)[:, None]
        sampler = np.zeros(shape, dtype=np.float32)
        sampler[inside] = np.concatenate([item.logprobs for item in self._items])
        self.mask_BT = self._to_device(inside & bool(items))
        num_stale_B1 = np.array([[item.num_stale] for item in self._items])
        self.stale_BT = self._to_device(np.arange(shape[1]) < num_stale_B1)
        self.sampler_logp_BT = self._to_device(sampler)
        self.advantage_BT = self._to_device(_advantages(self._items, shape[1]))
        row_N, at_N = inside.nonzero()
        self.at_N = (self._to_device(row_N), self._to_device(at_N))
        self._find_predictions()

    def _find_predictions(self) -> None:
        """Equal replies to one prompt make equal predictions, which are computed once."""
        places = np.concatenate([self._before(item, at) for item, at in self._located()])
        targets = np.concatenate([item.response_ids for item in self._items]).astype(np.int64)
        pairs = np.stack([places, targets], axis=1)
        distinct, number_N = np.unique(pairs, axis=0, return_inverse=True)
        self.place_U = self._to_device(distinct[:, 0].copy())
        """Positions whose hidden states predict reply tokens."""
        self.target_U = self._to_device(distinct[:, 1].copy())
        """The tokens that they predict."""
        self.number_N = self._to_device(number_N.reshape(-1))
        """The prediction of each reply token."""

    def _located(self) -> Iterator[tuple[Item, Places]]:
        return zip(self._items, self.sequences.places, strict=True)

    @staticmethod
    def _before(item: Item, places: Places) -> Places:
        """Positions before each reply token."""
        start = len(item.prompt_ids) - 1
        return places[start : start + len(item.response_ids)]

    def spread(self, values_N: Tensor) -> Tensor:
        """Arrange numbers of reply tokens in one row per reply."""
        out_BT = torch.zeros(self.mask_BT.shape, dtype=values_N.dtype, device=values_N.device)
        return out_BT.index_put(self.at_N, values_N)

    @cached_property
    def reference_BT(self) -> Tensor:
        """Log-probs of the reference model; NaN where they are not known."""
        return self._spread_rows([item.reference for item in self._items])[:, :-1]

    @cached_property
    def target_BS(self) -> Tensor:
        """Value targets; NaN where the critic is not trained. S = T + 1."""
        return self._spread_rows([item.targets for item in self._items])

    @cached_property
    def old_value_BS(self) -> Tensor:
        """Values from before the batch."""
        return self._spread_rows([item.values for item in self._items])

    @cached_property
    def value_place_M(self) -> Tensor:
        """Positions whose hidden states have values: each prompt's end, then its reply tokens."""
        places = [at[len(item.prompt_ids) - 1 : item.num_tokens] for item, at in self._located()]
        return self._to_device(np.concatenate(places))

    @cached_property
    def prompt_end_B(self) -> Tensor:
        """Positions of the last prompt tokens."""
        places = [at[len(item.prompt_ids) - 1] for item, at in self._located()]
        return self._to_device(np.array(places))

    def spread_values(self, values_M: Tensor) -> Tensor:
        """Arrange values in one row per reply."""
        shape = (self.mask_BT.shape[0], self.mask_BT.shape[1] + 1)
        out_BS = torch.zeros(shape, dtype=values_M.dtype, device=values_M.device)
        return out_BS.index_put(self._value_at_M, values_M)

    @cached_property
    def _value_at_M(self) -> tuple[Tensor, Tensor]:
        counts_B = np.array([len(item.response_ids) + 1 for item in self._items])
        row_M, at_M = (np.arange(counts_B.max()) < counts_B[:, None]).nonzero()
        return self._to_device(row_M), self._to_device(at_M)

    def _spread_rows(self, rows: Sequence[Values | None]) -> Tensor:
        out = np.full((self.mask_BT.shape[0], self.mask_BT.shape[1] + 1), np.nan, dtype=np.float32)
        for at, row in enumerate(rows):
            if row is not None:
                out[at, : len(row)] = row
        return self._to_device(out)

    def _to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _advantages(items: Sequence[Item], longest: int) -> npt.NDArray[np.float32]:
    """A single column, unless advantages differ by token."""
    column = np.array([[item.advantage] for item in items], dtype=np.float32)
    if all(item.advantages is None for item in items):
        return column
    full = np.repeat(column, longest, axis=1)
    for row, item in enumerate(items):
        if item.advantages is not None:
            full[row, : len(item.advantages)] = item.advantages
    return full
