"""Learning curves as one line of text, and short numbers, for terminals and documents."""

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
THOUSAND = 1000


def short(value: float) -> str:
    """A number with three digits; large ones as integers, such as 8,130."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.3g}"


def spark(values: Sequence[float], width: int = 40) -> str:
    """The values as bars, scaled from minimum to maximum; crowded values are averaged."""
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
