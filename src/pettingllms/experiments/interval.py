"""A mean over seeds with its confidence interval.

A repetition draws new seeds, so the interval is Student's t over the means of seeds: episodes of
one run are correlated and would make the interval too narrow. One seed, or identical seeds, have no
variance; a share then has Wilson's interval over its episodes, which covers this model only.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pettingllms.experiments.scoring import Measured
from pettingllms.runs.scores import wilson

T975 = (
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157,
    2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922,
    2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831,
    2.048407, 2.045230, 2.042272,
)  # fmt: skip
"""Half the width of a 95% interval in standard errors, by degrees of freedom from 1 to 30. Beyond,
the last one is taken: a little wide."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds with its 95% interval, if it has one."""

    value: float
    low: float | None
    high: float | None
    interval: Literal["t", "wilson", "none"]
    num_seeds: int


def mean_over_seeds(found: Sequence[Measured], is_share: bool) -> Mean:
    """The mean of one or more values, one per seed."""
    values = [one.value for one in found]
    middle = statistics.fmean(values)
    if len(set(values)) > 1:
        low, high = student(values)
        if is_share:
            low, high = max(0.0, low), min(1.0, high)
        return Mean(middle, low, high, "t", len(values))
    if is_share:
        low, high = wilson(middle, sum(one.num_tasks for one in found))
        return Mean(middle, low, high, "wilson", len(values))
    return Mean(middle, None, None, "none", len(values))


def student(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95% interval of the mean of two or more numbers."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = T975[min(len(values) - 1, len(T975)) - 1] * error
    middle = statistics.fmean(values)
    return middle - half, middle + half
