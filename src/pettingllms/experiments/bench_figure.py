"""The figure of a suite: scores of each form of a bench, and scores by token budget.

Above, one bar per form and bench. Below, for benches with a team and a solo form, success by tokens
per task: the higher line makes better use of the same tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from pettingllms.experiments.figure import COLORS, DPI, INK, LINE, STYLE, TEXT, WIDTH, Page, wrapped
from pettingllms.runs.scores import Estimate

FORM_COLORS = {"team": COLORS[0], "solo": COLORS[1]}
BAR, BENCH_GAP = 0.2, 0.14
"""Height of a bar, and space between two benches, in inches."""
NAMES = 1.9
"""Width of the bench names in inches."""
NUM_COLUMNS, PANEL, PANEL_GAP = 3, 1.75, 0.75
"""Panels per row, height of a panel, and space between two rows, in inches."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The score of a form by tokens per task."""

    form: str
    x: Sequence[float]
    y: Sequence[Estimate]
    voted: bool
    """Majority vote; else pass@k."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One bench."""

    name: str
    shares: Mapping[str, Estimate]
    """By form."""
    curves: Sequence[Curve] = field(default_factory=list)
    budget: float | None = None
    """Tokens at which forms are compared."""
    unit: str = ""


def draw_benches(title: str, note: str, panels: Sequence[Panel], path: Path) -> None:
    """Write the figure as PNG."""
    titles, notes = wrapped(title, 70), wrapped(note, 108)
    head = 0.2 + 0.24 * len(titles) + LINE * len(notes) + 0.15
    bars = sum(BAR * len(panel.shares) + BENCH_GAP for panel in panels) - BENCH_GAP / 2 + 0.4
    compared = [panel for panel in panels if panel.curves]
    num_rows = -(-len(compared) // NUM_COLUMNS)
    below = num_rows * (PANEL + PANEL_GAP) + (0.15 if num_rows else 0.0)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, head + bars + below), dpi=DPI)
        FigureCanvasAgg(canvas)
        page = Page(canvas, FORM_COLORS)
        page.write(titles, 0.12, 13, INK, "bold")
        page.write(notes, 0.14 + 0.24 * len(titles), TEXT, "#666666", "normal")
        _draw_bars(page, panels, below + 0.35, bars - 0.4)
        for at, panel in enumerate(compared):
            row, column = divmod(at, NUM_COLUMNS)
            bottom = 0.5 + (num_rows - 1 - row) * (PANEL + PANEL_GAP)
            _draw_curves(page, panel, column, bottom)
        canvas.savefig(path, facecolor="white")


def _draw_bars(page: Page, panels: Sequence[Panel], bottom: float, height: float) -> None:
    axes = page.add_axes(NAMES, bottom, WIDTH - NAMES - 0.9, height)
    at, named = 0.0, set()
    for panel in panels:
        middle = at + BAR * len(panel.shares) / 2
        axes.annotate(
            "\n".join(wrapped(panel.name, 26)), (0, middle), (-8, 0), ha="right", va="center",
            xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=TEXT,
            color=INK, linespacing=1.05, annotation_clip=False,
        )  # fmt: skip
        for form, found in panel.shares.items():
            compared = len(panel.shares) > 1
            name = form if compared and form not in named else ""
            named.add(name)
            color = FORM_COLORS[form] if compared else COLORS[0]
            _draw_bar(axes, at + BAR / 2, name, found, color)
            at += BAR
        at += BENCH_GAP
    axes.set_ylim(height, -BENCH_GAP / 2)
    axes.set_xlim(0, 1)
    axes.set_yticks([])
    axes.grid(True, axis="x")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_bar(axes: Any, at: float, name: str, found: Estimate, color: str) -> None:
    axes.barh(at, found.value, height=BAR * 0.82, color=color, alpha=0.85, lw=0)
    axes.plot([found.low, found.high], [at, at], color=INK, lw=1.0, solid_capstyle="butt")
    style: Any = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
    text = f"{found.value:.0%}"
    axes.annotate(text, (found.high, at), (4, 0), fontsize=TEXT - 1, color=INK, **style)
    axes.annotate(
        name, (found.high, at), (33, 0), fontsize=TEXT - 1, color=color, fontweight="bold", **style
    )


def _draw_curves(page: Page, panel: Panel, column: int, bottom: float) -> None:
    width = (WIDTH - 0.75 - 0.25) / NUM_COLUMNS
    axes = page.add_axes(0.7 + column * width, bottom, width - 0.4, PANEL)
    for curve in panel.curves:
        color, style = FORM_COLORS[curve.form], "--" if curve.voted else "-"
        values = [found.value for found in curve.y]
        axes.plot(curve.x, values, style, color=color, lw=1.6, marker="o", ms=2.8)
        if not curve.voted:
            low, high = [one.low for one in curve.y], [one.high for one in curve.y]
            axes.fill_between(curve.x, low, high, color=color, alpha=0.13, lw=0)
    if panel.budget:
        axes.axvline(panel.budget, color=INK, lw=0.9, ls=":")
    axes.set_title(panel.name, fontsize=TEXT + 0.5, loc="left", color=INK, pad=5)
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.grid(True)
    axes.set_xlabel(f"{panel.unit} per task", fontsize=TEXT)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if column:
        axes.tick_params(labelleft=False)
