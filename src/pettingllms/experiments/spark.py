"""A course in one line of text, for terminals and documents."""

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


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
