"""The figure of an experiment: learning curves and final evaluations.

It is designed for a width of 800 pixels. Lines and bars are labeled directly in the arm's color,
so no legend is needed.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from pettingllms.experiments.curves import over_one_axis
from pettingllms.experiments.difference import Mean
from pettingllms.experiments.results import Curve

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C3E", "#555555")
"""Okabe and Ito (2008), safe for color blindness, then brown and gray."""
INK, FAINT, GRID = "#222222", "#666666", "#E3E3E3"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}
WIDTH, DPI = 8.0, 200
TEXT, LINE = 9.0, 0.155
"""Label font size in points, and line height in inches."""
LETTER = 0.085
"""Width of a label character in inches; an overestimate."""
LINES, ROW = 3.2, 0.34
"""Height of the learning curves and of one bar, in inches."""
NAMES, GAP = 2.35, 0.25
"""Width of the arm names left of the bars, and space between two panels, in inches."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The upper part: learning curves by arm and seed."""

    curves: Mapping[str, Sequence[Curve]]
    x_label: str
    y_label: str
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """One panel of the lower part: an evaluation of each arm."""

    name: str
    means: Mapping[str, Mean]
    is_share: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of the figure. Arms are in table order and keep their colors."""

    title: str
    note: str
    """Legend of lines, bands and bars."""
    arms: Sequence[str]
    lines: Lines | None = None
    bars: Sequence[Bars] = field(default_factory=list)


def bars_note(bars: Sequence[Bars]) -> str:
    """Legend of the bars and their intervals."""
    kinds = {found.interval for panel in bars for found in panel.means.values()} - {"none"}
    if not kinds:
        return "Bars: without intervals."
    over = {"t": "over seeds", "wilson": "over test tasks"}
    lines = f"black lines: 95% intervals {' or '.join(over[kind] for kind in sorted(kinds))}."
    return f"Bars: mean over seeds; {lines}" if "t" in kinds else f"Bars: {lines}"


def draw(picture: Picture, path: Path) -> None:
    """Write the figure as PNG."""
    title, note = wrapped(picture.title, 70), wrapped(picture.note, 105)
    head = 0.2 + 0.24 * len(title) + LINE * len(note) + 0.12
    names = [wrapped(panel.name, panel_letters(picture)) for panel in picture.bars]
    top = max((len(name) for name in names), default=0) * LINE + 0.2
    lines = LINES + 0.5 if picture.lines else 0.0
    bars = top + ROW * len(picture.arms) + 0.4 if picture.bars else 0.0
    colors = {arm: COLORS[at % len(COLORS)] for at, arm in enumerate(picture.arms)}
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, head + lines + bars), dpi=DPI)
        FigureCanvasAgg(canvas)
        page = Page(canvas, colors)
        page.write(title, 0.12, 13, INK, "bold")
        page.write(note, 0.14 + 0.24 * len(title), TEXT, FAINT, "normal")
        if picture.lines is not None:
            page.draw_lines(picture.lines, bars + 0.55)
        if picture.bars:
            page.draw_bars(picture, names, 0.35)
        canvas.savefig(path, facecolor="white")


@dataclass(frozen=True, slots=True)
class Page:
    """The canvas and the color of every arm."""

    canvas: Canvas
    colors: Mapping[str, str]

    def write(self, text: Sequence[str], below: float, size: float, color: str, face: Any) -> None:
        """Write lines of text at the left, at a distance in inches from the upper edge."""
        at = 1 - below / self.canvas.get_figheight()
        style: dict[str, Any] = {"fontsize": size, "color": color, "fontweight": face}
        self.canvas.text(0.02, at, "\n".join(text), va="top", ha="left", **style)

    def add_axes(self, left: float, bottom: float, width: float, height: float) -> Any:
        """Axes at a position in inches."""
        whole = self.canvas.get_figheight()
        box = (left / WIDTH, bottom / whole, width / WIDTH, height / whole)
        return self.canvas.add_axes(box)

    def draw_lines(self, lines: Lines, bottom: float) -> None:
        """The mean over seeds, with a band from minimum to maximum."""
        label = wrapped(lines.y_label, 40)
        left = 0.6 + LINE * len(label)
        axes = self.add_axes(left, bottom, 5.8 - left, LINES - 0.1)
        ends: dict[str, tuple[float, float]] = {}
        for arm, curves in lines.curves.items():
            x, band = over_one_axis([curve for curve in curves if curve.x])
            color = self.colors[arm]
            if len(band) > 1:
                axes.fill_between(x, band.min(0), band.max(0), color=color, alpha=0.16, lw=0)
            axes.plot(x, band.mean(0), color=color, lw=1.8, solid_capstyle="round")
            ends[arm] = float(x[-1]), float(band.mean(0)[-1])
        axes.grid(True)
        axes.margins(x=0.0, y=0.06)
        axes.set_xlabel(lines.x_label)
        axes.set_ylabel("\n".join(label))
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        if lines.is_share:
            axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))  # whole percents
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        self._name_ends(axes, ends)

    def _name_ends(self, axes: Any, ends: Mapping[str, tuple[float, float]]) -> None:
        """Labels at the right, as close to the ends of their lines as space allows."""
        self.canvas.draw_without_rendering()
        box = axes.get_window_extent()
        labels = {arm: wrapped(arm, 26) for arm in ends}
        inch = box.height / (LINES - 0.1)  # pixels per inch differ between PDF and PNG
        heights = {arm: (len(label) + 0.35) * LINE * inch for arm, label in labels.items()}
        wanted = {arm: axes.transData.transform(end)[1] for arm, end in ends.items()}
        places = spread(wanted, heights, box.y0, box.y1)
        for arm, label in labels.items():
            axes.annotate(
                "\n".join(label),
                xy=ends[arm],
                xytext=(1.05, (places[arm] - box.y0) / box.height),
                textcoords="axes fraction",
                color=dark(self.colors[arm]),
                fontsize=TEXT,
                va="center",
                linespacing=1.1,
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-", "color": self.colors[arm], "lw": 0.8,
                    "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 0,
                },
            )  # fmt: skip

    def draw_bars(self, picture: Picture, names: Sequence[Sequence[str]], bottom: float) -> None:
        """One panel per evaluation, with arms from top to bottom; shares have a common scale."""
        shares = []
        for number, (panel, name) in enumerate(zip(picture.bars, names, strict=True)):
            width = _panel_width(picture)
            left = NAMES + number * (width + GAP)
            axes = self.add_axes(left, bottom, width, ROW * len(picture.arms))
            self._draw_panel(axes, panel, picture.arms, width)
            shares += [axes] if panel.is_share else []
            axes.set_title("\n".join(name), fontsize=TEXT + 0.5, loc="left", color=INK, pad=6)
            for at, arm in enumerate(picture.arms if number == 0 else []):
                axes.annotate(
                    "\n".join(wrapped(arm, 32)), (0, at), (-8, 0),
                    xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                    va="center", fontsize=TEXT, color=dark(self.colors[arm]), linespacing=1.05,
                    annotation_clip=False,
                )  # fmt: skip
        for axes in shares:
            axes.set_xlim(right=max(one.get_xlim()[1] for one in shares))

    def _draw_panel(self, axes: Any, panel: Bars, arms: Sequence[str], width: float) -> None:
        ends, labels = [0.0, 1.0 if panel.is_share else 0.0], [(0.0, "")]
        for at, arm in enumerate(arms):
            if arm not in panel.means:
                continue
            found = panel.means[arm]
            low, high = (found.value if end is None else end for end in (found.low, found.high))
            axes.barh(at, found.value, height=0.62, color=self.colors[arm], alpha=0.85, lw=0)
            axes.plot([low, high], [at, at], color=INK, lw=1.1, solid_capstyle="butt")
            ends += [low, high]
            digits = 1 if 0 < found.value < 0.095 else 0
            text = f"{found.value:.{digits}%}" if panel.is_share else f"{found.value:.2f}"
            text = text.replace("-", "\N{MINUS SIGN}")
            labels.append((high, text))
            axes.annotate(
                text, (max(high, 0.0), at), (4, 0), textcoords="offset points", va="center",
                fontsize=TEXT, color=INK, annotation_clip=False,
            )  # fmt: skip
        low, high = min(ends), max(ends)
        span = high - low or 1.0
        left = low - (0.05 * span if low < 0 else 0)
        ticks = [0.0, 0.5, 1.0] if width > 1.5 else [0.0, 1.0]
        if not panel.is_share:
            every = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(left, high)
            high = min([tick for tick in every if high <= tick <= high + 0.15 * span], default=high)
            ticks = [tick for tick in every if left <= tick <= high]
        texts = ((end, 1 - (len(text) * LETTER + 0.08) / width) for end, text in labels)
        room = max(left + (end - left) / share for end, share in texts)
        axes.set_xlim(left, max(high, room))
        axes.spines["bottom"].set_bounds(left, high)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_yticks([])
        axes.spines["left"].set_position(("data", 0.0))
        axes.set_xticks(ticks)
        if panel.is_share:
            axes.set_xticks([0.25, 0.5, 0.75], minor=True)
            axes.grid(True, axis="x", which="minor")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(True, axis="x")
        if width < 2:  # otherwise it overlaps with the first label of the next panel
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.get_xticklabels()[-1].set_horizontalalignment("right")


def _panel_width(picture: Picture) -> float:
    num = len(picture.bars)
    return (WIDTH - NAMES - 0.2 - GAP * (num - 1)) / num


def panel_letters(picture: Picture) -> int:
    """Characters per line of a panel's name."""
    return max(12, int(_panel_width(picture) * 12)) if picture.bars else 0


def wrapped(text: str, width: int) -> list[str]:
    """Lines of about equal length, with at most `width` characters."""
    best = textwrap.wrap(text, width, break_on_hyphens=False)
    for narrower in range(width - 1, 7, -1):
        lines = textwrap.wrap(text, narrower, break_on_hyphens=False)
        if len(lines) > len(best):
            break
        best = lines
    return best


def dark(color: str) -> Any:
    """A darker color for text on white."""
    return tuple(0.75 * part for part in to_rgb(color))


def spread(
    wanted: Mapping[str, float], heights: Mapping[str, float], low: float, high: float
) -> dict[str, float]:
    """Middles of labels that do not overlap, between two bounds if they fit there.

    Labels that touch form a block at the mean of their preferred positions.
    """
    blocks: list[tuple[list[str], float]] = []
    for name in sorted(wanted, key=lambda name: wanted[name]):
        block, middle = [name], _inside(wanted[name], heights[name], low, high)
        while blocks and _top(blocks[-1], heights) > middle - _size(block, heights) / 2:
            before, _ = blocks.pop()
            block = before + block
            size = _size(block, heights)
            starts = np.cumsum([0.0] + [heights[one] for one in block[:-1]])
            offsets = [
                wanted[one] - start - heights[one] / 2
                for one, start in zip(block, starts, strict=True)
            ]
            middle = _inside(float(np.mean(offsets)) + size / 2, size, low, high)
        blocks.append((block, middle))
    places: dict[str, float] = {}
    for block, middle in blocks:
        at = middle - _size(block, heights) / 2
        for name in block:
            places[name] = at + heights[name] / 2
            at += heights[name]
    return places


def _size(block: Sequence[str], heights: Mapping[str, float]) -> float:
    return sum(heights[name] for name in block)


def _top(block: tuple[list[str], float], heights: Mapping[str, float]) -> float:
    return block[1] + _size(block[0], heights) / 2


def _inside(middle: float, size: float, low: float, high: float) -> float:
    return max(low + size / 2, min(high - size / 2, middle))
