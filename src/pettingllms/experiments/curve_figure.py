"""The figure of learning curves: one small panel per metric.

Colors are arms if there are several, with one dash pattern per role; else colors are roles. One
legend above the panels names the lines.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from pettingllms.experiments.curves import Line, Panel
from pettingllms.experiments.figure import COLORS, DPI, FAINT, INK, STYLE, WIDTH, wrapped

DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
HEIGHT, HEAD, NUM_COLUMNS, NUM_NAMES = 2.0, 0.95, 2, 4


def draw_learning_curves(panels: Sequence[Panel], title: str, x_label: str, path: Path) -> None:
    """Write the panels as PNG or SVG, by file extension."""
    arms = list(dict.fromkeys(line.arm for panel in panels for line in panel.lines))
    parts = list(dict.fromkeys(line.part for panel in panels for line in panel.lines))
    styles = {(arm, part): _style(arms, parts, arm, part) for arm in arms for part in parts}
    num_rows = -(-len(panels) // NUM_COLUMNS)
    num_names = len({(line.arm, line.part) for panel in panels for line in panel.lines})
    head = HEAD + 0.2 * (-(-num_names // NUM_NAMES))
    height = head + num_rows * (HEIGHT + 0.55)
    with mpl.rc_context({**STYLE, "svg.fonttype": "none"}):
        canvas = Canvas(figsize=(WIDTH, height), dpi=DPI)
        (FigureCanvasSVG if path.suffix == ".svg" else FigureCanvasAgg)(canvas)
        canvas.text(
            0.02, 1 - 0.12 / height, wrapped(title, 70)[0], va="top", fontsize=13, weight="bold"
        )
        note = "Bands: minimum to maximum over seeds; for a single run, 95% intervals of shares."
        canvas.text(0.02, 1 - 0.38 / height, note, va="top", fontsize=8.5, color=FAINT)
        _name_lines(canvas, panels, styles, 1 - 0.58 / height)
        for at, panel in enumerate(panels):
            row, column = divmod(at, NUM_COLUMNS)
            width = (WIDTH - 0.75) / NUM_COLUMNS - 0.55
            left = 0.65 + column * (width + 0.75)
            bottom = height - head - (row + 1) * (HEIGHT + 0.55) + 0.5
            axes = canvas.add_axes((left / WIDTH, bottom / height, width / WIDTH, HEIGHT / height))
            _draw(axes, panel, styles, x_label if row == num_rows - 1 else "")
        canvas.savefig(path, facecolor="white")


def _style(arms: list[str], parts: list[str], arm: str, part: str) -> tuple[str, Any]:
    """Color and dashes."""
    if len(arms) == 1:
        return COLORS[parts.index(part) % len(COLORS)], DASHES[0]
    return COLORS[arms.index(arm) % len(COLORS)], DASHES[parts.index(part) % len(DASHES)]


def _name_lines(canvas: Canvas, panels: Sequence[Panel], styles: Any, top: float) -> None:
    seen = dict.fromkeys((line.arm, line.part) for panel in panels for line in panel.lines)
    several = len({arm for arm, _ in seen}) > 1
    handles, names = [], []
    for arm, part in seen:
        color, dashes = styles[arm, part]
        handles.append(Line2D([], [], color=color, ls=dashes, lw=1.8))
        names.append(" · ".join(filter(None, [arm if several else "", part])) or "all")
    canvas.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.01, top), ncols=NUM_NAMES,
        frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.8, borderpad=0,
    )  # fmt: skip


def _draw(axes: Any, panel: Panel, styles: Any, x_label: str) -> None:
    for line in panel.lines:
        color, dashes = styles[line.arm, line.part]
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, lw=0)
        marker = "o" if len(line.x) <= 12 else ""
        axes.plot(line.x, line.y, color=color, ls=dashes, lw=1.6, marker=marker, ms=3)
    axes.set_title(panel.title, fontsize=9.5, loc="left", color=INK, pad=5)
    axes.set_xlabel(x_label, fontsize=9, color=FAINT)
    axes.grid(True)
    axes.margins(x=0.01, y=0.08)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if panel.is_share:
        axes.set_ylim(max(0.0, _lowest(panel.lines) - 0.05), min(1.0, _highest(panel.lines) + 0.05))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _lowest(lines: Sequence[Line]) -> float:
    return min(min(line.low or line.y) for line in lines)


def _highest(lines: Sequence[Line]) -> float:
    return max(max(line.high or line.y) for line in lines)
