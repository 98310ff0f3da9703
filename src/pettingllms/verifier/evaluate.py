"""How good a verifier is: does it tell right from wrong, and are its probabilities probabilities.

Over all answers a verifier can look good by knowing hard questions from easy ones. So it is also
measured within questions: how often, of a right and a wrong answer to one question, it puts the
right one first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUM_BINS = 10
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers that were given about the same probability."""

    count: int
    said: float
    """The mean of what was said."""
    true: float
    """The share of them that are right."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured."""

    num_answers: int
    num_failed: int
    """Answers that got no score; they count in nothing else."""
    auc: float | None
    """How often a right answer is put before a wrong one; None without one of each."""
    auc_within: float | None
    """The same among the answers to one question, each question counting alike."""
    accuracy: float
    """Answers that were put on the right side of a half."""
    brier: float
    ece: float
    bins: list[Bin]
    roc: list[tuple[float, float]]
    """Share of wrong and of right answers that are let through, as the bar falls."""


def measure(
    scores: Sequence[float], right: Sequence[bool], questions: Sequence[str], num_failed: int = 0
) -> Report:
    """Compare what a verifier said with what is true."""
    said, true = np.array(scores, dtype=np.float64), np.array(right, dtype=np.bool_)
    asked = np.array(questions)
    within = [auc(said[asked == question], true[asked == question]) for question in set(questions)]
    known = [area for area in within if area is not None]
    bins = calibration(said, true)
    return Report(
        num_answers=len(said),
        num_failed=num_failed,
        auc=auc(said, true),
        auc_within=float(np.mean(known)) if known else None,
        accuracy=float(((said > 0.5) == true).mean()),
        brier=float(((said - true) ** 2).mean()),
        ece=sum(one.count * abs(one.said - one.true) for one in bins) / len(said),
        bins=bins,
        roc=roc(said, true),
    )


def auc(said: Floats, true: npt.NDArray[np.bool_]) -> float | None:
    """The share of pairs of a right and a wrong answer in the right order; ties are half."""
    num_right, num_wrong = int(true.sum()), int((~true).sum())
    if not num_right or not num_wrong:
        return None
    _, place, count = np.unique(said, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    above = float(rank[true].sum()) - num_right * (num_right + 1) / 2
    return above / (num_right * num_wrong)


def roc(said: Floats, true: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """The curve, from nothing let through to everything; none without one answer of each kind."""
    if true.all() or not true.any():
        return []
    bars = np.unique(said)[::-1]
    points = [
        (float((said[~true] >= bar).mean()), float((said[true] >= bar).mean())) for bar in bars
    ]
    return [(0.0, 0.0), *points]


def calibration(said: Floats, true: npt.NDArray[np.bool_]) -> list[Bin]:
    """Answers by what was said of them, in bins of equal width; empty ones are left out."""
    at = np.minimum((said * NUM_BINS).astype(int), NUM_BINS - 1)
    return [
        Bin(int((at == b).sum()), float(said[at == b].mean()), float(true[at == b].mean()))
        for b in range(NUM_BINS)
        if (at == b).any()
    ]
