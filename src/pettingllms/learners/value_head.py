"""The value head, its loss, and explained variance.

B replies in a pass, S value positions of the longest reply, M value positions in all, H hidden
size.
"""

# ruff: noqa: N803, N806

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pettingllms.learners.batches import Item


class ValueHead(nn.Module):
    """A linear layer from a hidden state to a value, in float32; initialized to zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.out = nn.Linear(size, 1, dtype=torch.float32)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_MH: Tensor) -> Tensor:
        """The values of hidden states."""
        with torch.autocast(hidden_MH.device.type, enabled=False):
            # Not a view of another tensor: FSDP hooks a module's outputs, and warns of views.
            value_M: Tensor = hidden_MH.float() @ self.out.weight[0] + self.out.bias
        return value_M


def hidden_size(lm: Any) -> int:
    """Width of the last hidden state."""
    return int(lm.config.get_text_config().hidden_size)


def squared_errors(
    value_BS: Tensor, old_value_BS: Tensor, target_BS: Tensor, clip: float | None
) -> Tensor:
    """The sum of squared errors over the positions that have a target.

    With a clip, as in PPO's reference implementation (Schulman et al., 2017), a value that has
    moved further than that from the old value has no gradient to move on.
    """
    mask_BS = target_BS.isfinite()
    value_BS = torch.where(mask_BS, value_BS, 0)
    target_BS = torch.where(mask_BS, target_BS, 0)
    error_BS = (value_BS - target_BS).square()
    if clip is not None:
        old_BS = torch.where(mask_BS, old_value_BS, 0)
        near_BS = old_BS + (value_BS - old_BS).clamp(-clip, clip)
        error_BS = torch.maximum(error_BS, (near_BS - target_BS).square())
    return error_BS.sum()


def binary_errors(value_BS: Tensor, target_BS: Tensor) -> Tensor:
    """The sum of cross-entropies over the positions that have a target, which is 0 or 1; a value is
    the log-odds of 1."""
    mask_BS = target_BS.isfinite()
    value_BS, target_BS = (torch.where(mask_BS, x_BS, 0) for x_BS in (value_BS, target_BS))
    error_BS = nn.functional.binary_cross_entropy_with_logits(value_BS, target_BS, reduction="none")
    return torch.where(mask_BS, error_BS, 0).sum()


def num_targets(items: Iterable[Item]) -> int:
    """Number of positions with a value target."""
    return sum(int(np.isfinite(i.targets).sum()) for i in items if i.targets is not None)


def explained(items: Sequence[Item]) -> float:
    """Explained variance of the targets by the values from before the batch."""
    pairs = [(i.values, i.targets) for i in items if i.values is not None and i.targets is not None]
    if not pairs:
        return 0.0
    values, targets = (
        np.concatenate(column).astype(np.float64) for column in zip(*pairs, strict=True)
    )
    trained = np.isfinite(targets)
    return explained_variance(values[trained], targets[trained])


def explained_variance(values: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]) -> float:
    """1 if values equal the targets, 0 if a constant would do as well, or if targets are equal."""
    spread = float(targets.var()) if len(targets) else 0.0
    return 1 - float((targets - values).var()) / spread if spread else 0.0


def value_metrics(items: Sequence[Item], errors: float) -> dict[str, float]:
    """Value metrics, given the sum of squared errors."""
    return {
        "value_loss": errors / max(1, num_targets(items)),
        "explained_variance": explained(items),
    }
