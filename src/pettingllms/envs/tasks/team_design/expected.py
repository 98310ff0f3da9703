"""The exact probability of success of a graph whose executors err with known probabilities.

An executor that sees d numbers replies correctly with probability `accuracy(d)`, and otherwise with
one of the other digits, each equally likely. The parts' sums are independent and uniform, so the
success probability is a finite sum over all sums and all errors, enumerated here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pettingllms.envs.tasks.team_design.graph import LABELS, Executor, TeamGraph

ACCURACY = (1.0, 0.95, 0.95, 0.7, 0.4, 0.2)
"""Probability of a correct reply to so many numbers, with `env.noise` and for the player `noisy`;
the last holds for more."""
MAX_OUTCOMES = 10**7
Digits = npt.NDArray[np.int64]


def noisy_accuracy(num_numbers: int) -> float:
    """Probability of a correct reply to so many numbers."""
    return ACCURACY[min(num_numbers, len(ACCURACY) - 1)]


def expected_success(
    graph: TeamGraph,
    num_parts: int,
    part_size: int,
    base: int,
    accuracy: Callable[[int], float] = noisy_accuracy,
) -> float:
    """Probability that the team's answer is correct, by enumeration of all outcomes."""
    num_axes = num_parts + len(graph.executors)
    if base**num_axes > MAX_OUTCOMES:
        raise ValueError(
            f"{base}**{num_axes} outcomes; expected at most {MAX_OUTCOMES}: use a smaller base"
        )
    axes: list[Digits] = [_axis(at, num_axes, base) for at in range(num_axes)]
    sums = dict(zip(LABELS, axes[:num_parts], strict=False))
    weight: Any = 1.0 / base**num_parts
    replies: dict[str, Digits] = {}
    for at, one in enumerate(graph.executors):
        error = axes[num_parts + at]
        correct, num_numbers = _correct(one, sums, replies, part_size, base)
        right = accuracy(num_numbers)
        weight = weight * np.where(error == 0, right, (1 - right) / (base - 1))
        replies[one.role] = (correct + error) % base
    hits = replies[graph.answers] == sum(sums.values()) % base
    shape = (base,) * num_axes
    return float((np.broadcast_to(weight, shape) * hits).sum())


def _axis(at: int, num_axes: int, base: int) -> Digits:
    """The digits along one axis of the table of outcomes."""
    shape = [base if axis == at else 1 for axis in range(num_axes)]
    return np.arange(base).reshape(shape)


def _correct(
    one: Executor,
    sums: dict[str, Digits],
    replies: dict[str, Digits],
    part_size: int,
    base: int,
) -> tuple[Digits, int]:
    """The correct reply to what an executor sees, and how many numbers it sees."""
    read = [sums[label] for label in one.reads if label in sums]
    heard = [replies[role] for role in one.hears]
    if one.prompt == "vote":
        if read:
            raise ValueError(f"'{one.role}' votes and reads parts; expected a vote of replies only")
        return _majority(heard), len(heard)
    total = sum([*read, *heard], start=np.zeros(1, dtype=np.int64).reshape((1,) * _rank(sums)))
    return total % base, len(read) * part_size + len(heard)


def _rank(sums: dict[str, Digits]) -> int:
    return next(iter(sums.values())).ndim


def _majority(heard: Sequence[Digits]) -> Digits:
    """The most frequent digit; ties go to the one heard first; 0 if nothing is heard."""
    if not heard:
        return np.zeros(1, dtype=np.int64)
    best, most = heard[0], sum((other == heard[0]).astype(np.int64) for other in heard)
    for digit in heard[1:]:
        count = sum((other == digit).astype(np.int64) for other in heard)
        best, most = np.where(count > most, digit, best), np.maximum(count, most)
    return best
