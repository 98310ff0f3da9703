"""Compare a full run of an experiment with its shipped results.

Two means over n and k seeds differ by chance with a variance of s² (1/n + 1/k). The variance s²
over seeds is pooled over the arms of a column, because three seeds of one arm are too few. It
is at least what the number of test tasks leaves open, p (1 - p) / tasks for a share. That also
serves where one seed was shipped, for which no scatter is known.
"""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from pettingllms.errors import ConfigError
from pettingllms.experiments.experiment import Evaluation, Experiment, Repetition
from pettingllms.experiments.results import Result
from pettingllms.experiments.scoring import Measured


def read_results(path: Path) -> list[Result]:
    """The results in a `results.json` of `reproduce`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [Result.from_json(one) for one in data["results"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            str(path), [f"is not a results.json of `reproduce`: {error!r}"]
        ) from error


def mismatches(
    experiment: Experiment, results: Sequence[Result], shipped: Sequence[Result]
) -> Iterator[str]:
    """Messages about cells outside the tolerance, and about cells that only the shipped results
    have."""
    for column in experiment.evaluations:
        known = {arm.name: _cells(shipped, arm.name, column) for arm in experiment.arms}
        for arm, old in known.items():
            new = _cells(results, arm, column)
            what = f"'{arm}', '{column.name}'"
            if old and not new:
                yield f"{what}: missing, but the shipped results have it"
            if not old or not new:
                continue
            allowed = tolerance(experiment.repetition, column, list(known.values()), old, len(new))
            reached, expected = _mean(new), _mean(old)
            if abs(reached - expected) > allowed:
                yield (
                    f"{what}: {reached:.3f} differs from the shipped {expected:.3f} by more than "
                    f"the tolerance of {allowed:.3f}"
                )


def tolerance(
    options: Repetition,
    column: Evaluation,
    shipped: Sequence[Sequence[Measured]],
    cell: Sequence[Measured],
    num_seeds: int,
) -> float:
    """The allowed difference between a new and a shipped mean; `shipped` has the cells of all arms
    in the column."""
    variance = _pooled(shipped)
    if column.is_share:
        variance = max(variance, *(_of_tasks(one) for one in cell))
    error = math.sqrt(variance * (1 / len(cell) + 1 / num_seeds))
    means = [_mean(one) for one in shipped if one]
    always = options.min_share
    if not column.is_share:
        always = options.min_range * (max(means) - min(means))
    return max(options.num_errors * error, always)


def _pooled(cells: Sequence[Sequence[Measured]]) -> float:
    """Variance over seeds, pooled over arms; 0 if no arm has two seeds."""
    several = [[one.value for one in cell] for cell in cells if len(cell) > 1]
    weight = sum(len(values) - 1 for values in several)
    total = sum((len(values) - 1) * statistics.variance(values) for values in several)
    return total / weight if weight else 0.0


def _of_tasks(found: Measured) -> float:
    """Sampling variance of a share over test tasks. One success and one failure are added, so that
    a share of 0 or 1 has a variance too."""
    share = (found.value * found.num_tasks + 1) / (found.num_tasks + 2)
    return share * (1 - share) / found.num_tasks


def _cells(results: Sequence[Result], arm: str, column: Evaluation) -> list[Measured]:
    return [
        result.evaluations[column.name].measured
        for result in results
        if result.arm == arm and column.name in result.evaluations
    ]


def _mean(found: Sequence[Measured]) -> float:
    return statistics.fmean(one.value for one in found)
