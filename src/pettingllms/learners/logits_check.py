"""Compare the learner's log-probs with the model's own forward pass when the model is loaded.

A learner computes logits with the output layer, for reply tokens only. Some models scale, cap or
shift their logits after that layer, under settings whose names differ by family. So the learner
does not look for names: it compares both computations on a short reply. The same module computes
both, so this takes no second copy of the model. All ranks take part.
"""

# ruff: noqa: N806

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import LearnerError
from pettingllms.learners.batches import Item
from pettingllms.learners.micro_batches import MicroBatches
from pettingllms.learners.policy_model import LogProbModel
from pettingllms.learners.sharding import reshard

PROMPT, REPLY = np.arange(5, 9, dtype=np.int32), np.arange(9, 17, dtype=np.int32)
SPREAD = 10.0
"""Standard deviation of the logits in the second comparison. A cap does not change the small
logits of an untrained model."""
TOLERANCE = 0.05
"""Largest difference of log-probs, relative to the logits' standard deviation or to 1. Rounding in
bfloat16 causes a tenth of that."""


def check_logits(
    model: LogProbModel,
    micro_batches: MicroBatches,
    arithmetic: AbstractContextManager[Any],
) -> None:
    """Raise LearnerError if the model changes its logits after the output layer."""
    reply = Item(PROMPT, REPLY, np.zeros(len(REPLY), np.float32), 0.0)
    batch, spread = micro_batches.batch([reply], as_trees=False), Spread()
    with torch.no_grad(), arithmetic:
        own_N, ours_N = (model(batch, 1.0, False, whole=whole)[0] for whole in (True, False))
        mismatch = float((own_N - ours_N).abs().max())
        handle = model.output_layer.register_forward_hook(spread)
        try:
            own_N, ours_N = (model(batch, 1.0, False, whole=whole)[0] for whole in (True, False))
        finally:
            handle.remove()
    reshard(model)
    mismatch = max(mismatch, float((own_N - ours_N).abs().max()) / SPREAD)
    if not mismatch <= TOLERANCE:
        raise LearnerError(
            f"{model.lm.config.model_type} models change their logits after the output layer, "
            f"which the learner does not support: on a short reply its log-probs differ from the "
            f"model's own by {mismatch:.2g}; use a model of another family"
        )


class Spread:
    """Scales logits to the size of a trained model's, by the same factor in every pass."""

    def __init__(self) -> None:
        self._factor: float | None = None

    def __call__(self, _module: Any, _args: Any, logits: Tensor) -> Tensor:
        """Scale the output layer's logits."""
        if self._factor is None:
            self._factor = SPREAD / max(1e-9, float(logits.float().std()))
        return logits * self._factor
