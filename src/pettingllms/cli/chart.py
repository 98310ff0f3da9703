"""A small chart of shares in the terminal, such as success in evaluations."""

import math
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

HEIGHT = 6
"""Lines of the chart, without its axis."""
COLUMN = 4
"""Characters from one bar to the next."""
BLOCKS, ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " ..--==##"
LABELS = {0: "100%", HEIGHT // 2: " 50%", HEIGHT - 1: "  0%"}


class ShareChart:
    """Shares from 0 to 1 as bars, the latest at the right, with the number of the step below."""

    def __init__(self, steps: Sequence[int], shares: Sequence[float]) -> None:
        self._points = list(zip(steps, shares, strict=True))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(COLUMN, options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks = ASCII_BLOCKS if options.ascii_only else BLOCKS
        corner, side = ("+", "|") if options.ascii_only else ("└", "│")
        fit = max(1, (options.max_width - len(LABELS[0]) - 2) // COLUMN)
        points = self._points[-fit:]
        for line in range(HEIGHT):
            bars = "".join(block(share, line, blocks) * (COLUMN - 1) + " " for _, share in points)
            label = LABELS.get(line, "")
            yield Text.assemble((f"{label:>4} {side}", "dim"), (bars, "green"))
        numbers = "".join(f"{step:<{COLUMN}}"[:COLUMN] for step, _ in points)
        yield Text(f"step {corner}{numbers}", style="dim")


def block(share: float, line: int, blocks: str) -> str:
    """What a bar shows in a line, counted from the top: empty, full or a part."""
    if not math.isfinite(share):
        return " "
    full = len(blocks) - 1
    eighths = round(min(max(share, 0.0), 1.0) * HEIGHT * full)
    return blocks[min(max(eighths - (HEIGHT - 1 - line) * full, 0), full)]
