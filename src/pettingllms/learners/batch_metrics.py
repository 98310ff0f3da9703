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
    "stale": "stale_share",
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
        all_tokens, num_stale = sums.pop("tokens", 0.0), sums.pop("stale_tokens", 0.0)
        num_tokens = max(1.0, all_tokens)
        num_replies = sums.pop("replies", 1.0)
        counts = dict.fromkeys(MAXIMA, 1.0) | dict.fromkeys(self._reply_metrics, num_replies)
        counts["mismatch"] = max(1.0, all_tokens - num_stale)
        drift = sums.pop("drift", 0.0)
        if num_stale:
            counts["drift"] = num_stale
            sums |= {"drift": drift, "stale": num_stale}
        return {SHARES.get(n, n): v / counts.get(n, num_tokens) for n, v in sums.items()}


def mean_mismatch(items: Sequence[Item], logprobs: Mapping[int, LogProbs]) -> float:
    """Mean train-inference mismatch per token that the current weights sampled; the learner's
    log-probs are keyed by item id."""
    mismatches = [
        np.abs(logprobs[id(item)] - item.logprobs)[item.num_stale :]
        for item in items
        if item.num_stale < len(item.logprobs)
    ]
    return float(np.concatenate(mismatches).mean()) if mismatches else 0.0
