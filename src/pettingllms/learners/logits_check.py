"""The learner's log-probs against the model's own, when the model is loaded.

A learner makes logits with the output layer, of reply tokens alone. Some models scale, cap or shift
their logits after that layer, and each family calls such a setting otherwise, at times in a nested
config. So the learner does not look for names: it compares both ways on a short reply. The same
module computes both, so this takes no second copy of the model, and every rank takes part.
"""

# ruff: noqa: N806

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.policy_model import LogProbModel, Padded
from pettingllms.learners.sharding import reshard

PROMPT, REPLY = np.arange(5, 9, dtype=np.int32), np.arange(9, 17, dtype=np.int32)
SPREAD = 10.0
"""Standard deviation that logits get in the second comparison. A cap does nothing to the small
logits of a model that was not trained yet."""
TOLERANCE = 0.05
"""Log-probs that differ by more, as a share of the logits' standard deviation or of 1: rounding in
bfloat16 makes a tenth of that."""


def check_logits(
    model: LogProbModel,
    padded_of: Callable[[Sequence[Item]], Padded],
    arithmetic: AbstractContextManager[Any],
) -> None:
    """Raise LearnerError if the model changes its logits after the output layer."""
    reply = Item(PROMPT, REPLY, np.zeros(len(REPLY), np.float32), 0.0)
    padded, spread = padded_of([reply]), Spread()
    with torch.no_grad(), arithmetic:
        own_N, ours_N = (model(padded, 1.0, False, whole=whole)[0] for whole in (True, False))
        mismatch = float((own_N - ours_N).abs().max())
        handle = model.output_layer.register_forward_hook(spread)
        try:
            own_N, ours_N = (model(padded, 1.0, False, whole=whole)[0] for whole in (True, False))
        finally:
            handle.remove()
    reshard(model)
    mismatch = max(mismatch, float((own_N - ours_N).abs().max()) / SPREAD)
    if not mismatch <= TOLERANCE:
        raise LearnerError(
            f"{model.lm.config.model_type} models change their logits after the output layer, "
            f"which the learner does not do: on a short reply its log-probs differ from the "
            f"model's own by {mismatch:.2g}; take a model of another family"
        )


class Spread:
    """Makes logits as large as those of a trained model; the same factor in every pass."""

    def __init__(self) -> None:
        self._factor: float | None = None

    def __call__(self, _module: Any, _args: Any, logits: Tensor) -> Tensor:
        """Scale what the output layer gives."""
        if self._factor is None:
            self._factor = SPREAD / max(1e-9, float(logits.float().std()))
        return logits * self._factor
