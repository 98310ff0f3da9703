"""Paired differences between arms.

Arms with the same seed share the base model and the test tasks. So the difference is taken within
each seed, which cancels the effect of the seed, and the interval is Student's t over these
differences. With one seed the pairs are test tasks, and the interval covers these two models only.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pettingllms.experiments.experiment import Evaluation, Experiment
from pettingllms.experiments.results import Result
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


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two arms, with its 95% interval, if any."""

    arm: str
    minus: str
    """The subtracted arm."""
    evaluation: str
    value: float
    low: float | None
    high: float | None
    paired_by: Literal["seeds", "tasks", "none"]
    """What the interval is over."""
    num_pairs: int


def differences(experiment: Experiment, results: Sequence[Result]) -> Iterator[Difference]:
    """All pairs of arms and all evaluations, if a seed has both."""
    names = [arm.name for arm in experiment.arms]
    for at, minus in enumerate(names):
        for arm in names[at + 1 :]:
            for column in experiment.evaluations:
                found = difference(results, arm, minus, column)
                if found is not None:
                    yield found


def difference(
    results: Sequence[Result], arm: str, minus: str, column: Evaluation
) -> Difference | None:
    """The difference between two arms over their shared seeds."""
    of_arm, of_other = (_by_seed(results, name, column.name) for name in (arm, minus))
    pairs = [(of_arm[seed], of_other[seed]) for seed in sorted(of_arm.keys() & of_other.keys())]
    if not pairs:
        return None
    by_seed = [one.value - other.value for one, other in pairs]
    value = statistics.fmean(by_seed)
    names = (arm, minus, column.name)
    if len(set(by_seed)) > 1:
        return Difference(*names, value, *student(by_seed), "seeds", len(by_seed))
    by_task = [gap for one, other in pairs for gap in _task_gaps(one, other)]
    if len(set(by_task)) > 1:
        return Difference(*names, value, *student(by_task), "tasks", len(by_task))
    return Difference(*names, value, None, None, "none", len(by_seed))


def _by_seed(results: Sequence[Result], arm: str, evaluation: str) -> dict[int, Measured]:
    return {
        result.seed: result.evaluations[evaluation].measured
        for result in results
        if result.arm == arm and evaluation in result.evaluations
    }


def _task_gaps(one: Measured, other: Measured) -> list[float]:
    """Differences per task; empty if the tasks differ."""
    if not one.tasks or one.tasks != other.tasks:
        return []
    pairs = zip(one.values, other.values, strict=True)
    return [a - b for a, b in pairs if a is not None and b is not None]
