"""The forest plot: planned contrasts of all experiments, each with both of its intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from pettingllms.experiments.contrasts import Effect
from pettingllms.experiments.figure import COLORS, DPI, FAINT, INK, STYLE, WIDTH, wrapped

NAMES, ROW, HEAD, FOOT = 3.9, 0.42, 0.75, 0.55
"""Width of the names, and heights of a row, of the title and of the axis, in inches."""
LETTERS = 48
NOTE = (
    "Percentage points. Thick: 95% interval over seeds; thin: over test tasks, for these trained "
    "models only. n: paired seeds."
)


@dataclass(frozen=True, slots=True)
class Row:
    """A planned contrast of an experiment whose values are shares."""

    experiment: str
    effect: Effect

    @property
    def name(self) -> str:
        """The contrast, on up to two lines."""
        effect = self.effect
        pair = f"{effect.arm} − {effect.minus}"
        if effect.evaluation != effect.minus_evaluation:
            pair += f" ({effect.minus_evaluation})"
        text = f"{self.experiment}: {pair}, n = {effect.num_seeds}"
        return "\n".join(wrapped(text, LETTERS)[:2])


def draw_forest(title: str, rows: Sequence[Row], path: Path) -> None:
    """Write the plot as PNG; rows from top to bottom."""
    height = HEAD + ROW * len(rows) + FOOT
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(canvas)
        canvas.text(0.02, 1 - 0.12 / height, title, va="top", fontsize=13, weight="bold")
        note = "\n".join(wrapped(NOTE, 105))
        canvas.text(0.02, 1 - 0.38 / height, note, va="top", fontsize=8.5, color=FAINT)
        box = (
            NAMES / WIDTH,
            FOOT / height,
            (WIDTH - NAMES - 0.3) / WIDTH,
            ROW * len(rows) / height,
        )
        axes: Any = canvas.add_axes(box)
        for at, row in enumerate(rows):
            _draw_row(axes, at, row.effect)
        axes.axvline(0, color=INK, lw=0.9)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8.5, linespacing=1.1)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_xlabel("difference in percentage points", fontsize=9)
        axes.grid(True, axis="x")
        canvas.savefig(path, facecolor="white")


def _draw_row(axes: Any, at: int, effect: Effect) -> None:
    color = COLORS[0] if effect.over_seeds else FAINT
    for bounds, width, y in ((effect.over_tasks, 1.0, at + 0.2), (effect.over_seeds, 3.4, at)):
        if bounds is not None:
            ends = [100 * bound for bound in bounds]
            axes.plot(ends, [y, y], color=color, lw=width, solid_capstyle="butt")
    axes.plot([100 * effect.value], [at], "o", color=color, ms=6, mec="white", mew=0.8)
