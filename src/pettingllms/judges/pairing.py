"""Who meets whom: everybody everybody, or in rounds of a Swiss tournament.

A round robin of n answers is n(n-1)/2 comparisons. In a Swiss tournament a round is n/2, and those
meet who have won alike: a few rounds order the best and the worst nearly as well.
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
    """Pairs of one round: by points, the nearest that have not met. Where all have met, somebody
    rests; with an odd number the last of those that have met most, so that nobody rests twice while
    others have not at all."""
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
