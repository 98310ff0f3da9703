"""A course in one line of text, and its numbers, for terminals and documents."""

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
THOUSAND = 1000


def short(value: float) -> str:
    """A number in three digits; a large one whole, as 8,130 and not as 8.13e+03."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.3g}"


def spark(values: Sequence[float], width: int = 40) -> str:
    """The values as bars, the lowest and the highest setting the scale; a mean where they crowd."""
    if not values:
        return ""
    size = max(1, math.ceil(len(values) / width))
    means = [
        math.fsum(part) / len(part)
        for at in range(0, len(values), size)
        if (part := values[at : at + size])
    ]
    low, high = min(means), max(means)
    if high == low:
        return BARS[3] * len(means)
    return "".join(BARS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)
