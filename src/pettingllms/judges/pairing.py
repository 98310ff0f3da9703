"""Pairing of answers: round robin or Swiss system.

A round robin of n answers takes n(n-1)/2 comparisons. A Swiss round takes n/2 and pairs answers
with similar scores; a few rounds rank the best and the worst nearly as well.
"""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

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
