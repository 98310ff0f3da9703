"""Evaluate a verifier: discrimination (AUC) and calibration (Brier score, ECE).

Over all answers, a verifier can score well by telling hard questions from easy ones. AUC is
therefore also computed within questions: how often the correct one of two answers to the same
question gets the higher score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUM_BINS = 10
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bin:
    """A calibration bin: answers with similar scores."""

    count: int
    score: float
    """The mean score."""
    accuracy: float
    """The share of correct answers."""


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics of a verifier."""

    num_answers: int
    num_failed: int
    """Answers without a score; excluded from all other metrics."""
    auc: float | None
    """Area under the ROC curve; None unless there are both correct and wrong answers."""
    auc_within: float | None
    """Mean AUC within questions, each question weighted equally."""
    accuracy: float
    """Share of answers classified correctly at a threshold of 0.5."""
    brier: float
    ece: float
    bins: list[Bin]
    roc: list[tuple[float, float]]
    """False positive rate and true positive rate, as the threshold falls."""


def measure(
    scores: Sequence[float], labels: Sequence[bool], questions: Sequence[str], num_failed: int = 0
) -> Report:
    """Compare scores with labels."""
    score, correct = np.array(scores, dtype=np.float64), np.array(labels, dtype=np.bool_)
    asked = np.array(questions)
    within = [
        auc(score[asked == question], correct[asked == question]) for question in set(questions)
    ]
    known = [area for area in within if area is not None]
    bins = calibration(score, correct)
    return Report(
        num_answers=len(score),
        num_failed=num_failed,
        auc=auc(score, correct),
        auc_within=float(np.mean(known)) if known else None,
        accuracy=float(((score > 0.5) == correct).mean()),
        brier=float(((score - correct) ** 2).mean()),
        ece=sum(one.count * abs(one.score - one.accuracy) for one in bins) / len(score),
        bins=bins,
        roc=roc(score, correct),
    )


def auc(score: Floats, correct: npt.NDArray[np.bool_]) -> float | None:
    """Share of correct-wrong pairs in the right order; ties count one half."""
    num_correct, num_wrong = int(correct.sum()), int((~correct).sum())
    if not num_correct or not num_wrong:
        return None
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    above = float(rank[correct].sum()) - num_correct * (num_correct + 1) / 2
    return above / (num_correct * num_wrong)


def roc(score: Floats, correct: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """The ROC curve from (0, 0) to (1, 1); empty unless both labels occur."""
    if correct.all() or not correct.any():
        return []
    thresholds = np.unique(score)[::-1]
    points = [
        (float((score[~correct] >= threshold).mean()), float((score[correct] >= threshold).mean()))
        for threshold in thresholds
    ]
    return [(0.0, 0.0), *points]


def calibration(score: Floats, correct: npt.NDArray[np.bool_]) -> list[Bin]:
    """Calibration bins of equal width; empty bins are omitted."""
    at = np.minimum((score * NUM_BINS).astype(int), NUM_BINS - 1)
    return [
        Bin(int((at == b).sum()), float(score[at == b].mean()), float(correct[at == b].mean()))
        for b in range(NUM_BINS)
        if (at == b).any()
    ]
