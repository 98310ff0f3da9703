"""Writes the table and the figure of the page on credit assignment, which check every algorithm.

The expected gradient of each algorithm is enumerated, not sampled: see credit_gradients.py in
tests/helpers.
"""

import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests" / "helpers"))

import matplotlib.pyplot as plt  # noqa: E402 - the enumeration lives with the tests
from credit_cases import CASES, checked  # noqa: E402
from credit_table import with_table  # noqa: E402

COLUMNS = 4
BLUE, RED = "#1f6f8b", "#c4472b"


def draw(path: Path) -> None:
    """Exact gradient against the estimate, for every algorithm, over all games."""
    rows = -(-len(CASES) // COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(11, 2.6 * rows), sharex=True, sharey=True)
    for number, axes in enumerate(grid.flat):
        axes.set_visible(number < len(CASES))
        if number < len(CASES):
            _draw_case(axes, number)
    for axes in grid[:, 0]:
        axes.set_ylabel("estimate, scaled")
    for axes in grid.flat[len(CASES) - COLUMNS : len(CASES)]:
        axes.set_xlabel("exact gradient")
        axes.tick_params(labelbottom=True)
    figure.suptitle("Expected gradient of every algorithm against the exact policy gradient")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _draw_case(axes: Any, number: int) -> None:
    case = CASES[number]
    axes.axline((0, 0), slope=1, color="0.8", linewidth=1, zorder=0)
    axes.axhline(0, color="0.9", linewidth=0.8, zorder=0)
    axes.axvline(0, color="0.9", linewidth=0.8, zorder=0)
    for game in case.games:
        found = checked(number, game)
        size = abs(found.whole.exact).max()
        for prompt, one in found.by_prompt.items():
            color = RED if prompt in found.wrong_signs else BLUE
            estimate = one.estimate / found.whole.scale / size
            axes.scatter(one.exact / size, estimate, s=11, color=color, alpha=0.75, linewidth=0)
    axes.set_title(case.algo, fontsize=10, loc="left", fontweight="bold", pad=14)
    label = case.label or "defaults"
    axes.text(0, 1.03, label, transform=axes.transAxes, fontsize=7, color="0.35")
    axes.set_xlim(-1.15, 1.15)
    axes.set_ylim(-1.5, 1.5)


if __name__ == "__main__":
    page = DOCS / "concepts" / "credit_assignment.md"
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
    draw(DOCS / "images" / "credit.png")
