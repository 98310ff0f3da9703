"""Bradley-Terry strengths from pairwise comparisons, with their uncertainty.

The probability that i beats j is the logistic of the difference of their strengths (Bradley and
Terry, 1952). A tie counts as half a win for each; a verdict of 0.8 counts as 0.8 of a win. The
normal prior keeps the strength of a player that won every comparison finite.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
NUM_STEPS, CLOSE = 100, 1e-12


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two players, by index, with the result of the first: 0 to 1."""

    one: int
    other: int
    won: float


@dataclass(frozen=True, slots=True)
class Strengths:
    """The maximum a posteriori strengths and the standard deviations of their posterior (Laplace
    approximation)."""

    values: Floats
    deviations: Floats

    def expected(self) -> Floats:
        """The expected win rate of each player against all others."""
        differences = self.values[:, None] - self.values[None, :]
        chances = 1 / (1 + np.exp(-differences))
        np.fill_diagonal(chances, 0)
        shares: Floats = chances.sum(axis=1) / max(1, len(self.values) - 1)
        return shares


def strengths(num_players: int, comparisons: Sequence[Comparison], prior: float) -> Strengths:
    """Fit by Newton's method; the penalty is `prior` times the sum of squares."""
    values = np.zeros(num_players)
    first = np.array([c.one for c in comparisons], dtype=np.int64)
    second = np.array([c.other for c in comparisons], dtype=np.int64)
    won = np.array([c.won for c in comparisons], dtype=np.float64)
    for _ in range(NUM_STEPS):
        gradient, hessian = _slopes(values, first, second, won, prior)
        move = np.linalg.solve(hessian, gradient)
        values = values - move
        if np.abs(move).max() < CLOSE:
            break
    _, hessian = _slopes(values, first, second, won, prior)
    return Strengths(values, np.sqrt(np.diag(np.linalg.inv(hessian))))


def _slopes(
    values: Floats,
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
    won: Floats,
    prior: float,
) -> tuple[Floats, Floats]:
    """Gradient and Hessian of the negative log-posterior."""
    chance = 1 / (1 + np.exp(-(values[first] - values[second])))
    gradient = 2 * prior * values
    np.add.at(gradient, first, chance - won)
    np.add.at(gradient, second, won - chance)
    hessian = 2 * prior * np.eye(len(values))
    weight = chance * (1 - chance)
    for rows, columns, sign in (
        (first, first, 1),
        (second, second, 1),
        (first, second, -1),
        (second, first, -1),
    ):
        np.add.at(hessian, (rows, columns), sign * weight)
    return gradient, hessian


Pair = tuple[int, int]


def round_robin(num_players: int) -> list[Pair]:
    """Every pair once."""
    return list(combinations(range(num_players), 2))


def swiss_round(points: Sequence[float], met: set[Pair], rng: random.Random) -> list[Pair]:
    """Pairs of one round: nearest in points among those not compared yet. With an odd number, the
    lowest-ranked of those with most comparisons gets the bye, so that byes are spread evenly."""
    order = sorted(range(len(points)), key=lambda player: (-points[player], rng.random()))
    if len(order) % 2:
        games = Counter(player for pair in met for player in pair)
        most = max(games[player] for player in order)
        order.remove(next(player for player in reversed(order) if games[player] == most))
    pairs: list[Pair] = []
    while order:
        one = order.pop(0)
        other = next((p for p in order if (min(one, p), max(one, p)) not in met), None)
        if other is not None:
            order.remove(other)
            pairs.append((min(one, other), max(one, other)))
    return pairs
