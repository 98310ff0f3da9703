"""Metrics of a batch: sums over minibatches, then means over tokens or replies."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from pettingllms.learners.batches import Item
from pettingllms.types import LogProbs

MAXIMA = ("max_mismatch",)
SHARES = {
    "clipped": "clip_share",
    "dual_clipped": "dual_clip_share",
    "weight_capped": "capped_share",
}
"""Metrics that count tokens, with the name of their share of all tokens."""


class Sums:
    """Sums over the minibatches of a batch, and maxima."""

    def __init__(self, reply_metrics: Collection[str] = ()) -> None:
        self._sums: dict[str, float] = {}
        self._reply_metrics = reply_metrics
        """Those that are means over replies; the others are means over tokens."""

    def add(self, part: Mapping[str, float]) -> None:
        """Add the metrics of one minibatch."""
        for name, value in part.items():
            known = self._sums.get(name, 0.0)
            self._sums[name] = max(known, value) if name in MAXIMA else known + value

    def pop(self, name: str, default: float) -> float:
        """Remove and return a sum that is not reported as a mean over tokens."""
        return self._sums.pop(name, default)

    def means(self) -> dict[str, float]:
        """Means over tokens, or replies."""
        sums = dict(self._sums)
        num_tokens = max(1.0, sums.pop("tokens", 0.0))
        num_replies = sums.pop("replies", 1.0)
        counts = dict.fromkeys(MAXIMA, 1.0) | dict.fromkeys(self._reply_metrics, num_replies)
        return {SHARES.get(n, n): v / counts.get(n, num_tokens) for n, v in sums.items()}


def mean_mismatch(items: Sequence[Item], logprobs: Mapping[int, LogProbs]) -> float:
    """Mean train-inference mismatch per token; the learner's log-probs are keyed by item id."""
    if not items:
        return 0.0
    mismatches = [np.abs(logprobs[id(item)] - item.logprobs) for item in items]
    return float(np.concatenate(mismatches).mean())
