"""The figure of the simulator: busy share and speed of GPUs by their number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from pettingllms.experiments.figure import (
    COLORS,
    DPI,
    FAINT,
    INK,
    STYLE,
    TEXT,
    WIDTH,
    Page,
    wrapped,
)

NAMES = {True: "asynchronous", False: "synchronous"}
LINE_COLORS = {"asynchronous": COLORS[0], "synchronous": COLORS[1]}
NAME_PLACES = {"asynchronous": 0.68, "synchronous": 0.1}
"""Heights of the labels in the first panel."""
TARGET, AT = 0.85, 512
"""Busy share that is wanted, and the number of GPUs at which it is."""
NOTE = (
    "Simulated from assumed speeds, never measured. Two roles with LoRA adapters, replies up to "
    "8,192 tokens with a long tail. Asynchronous: staleness up to 2, best split of GPUs. "
    "Synchronous: engines and learners share GPUs. Dotted: the target at 512 GPUs."
)
PANEL, GAP, LEFT, BETWEEN = 1.75, 0.3, 0.95, 0.5
"""Height of a panel, space between rows, left margin and space between panels, in inches."""


@dataclass(frozen=True, slots=True)
class Line:
    """One loop of training."""

    asynchronous: bool
    busy: Mapping[int, float]
    """By number of GPUs."""
    speed: Mapping[int, float]
    """Tokens per second and GPU."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One model."""

    name: str
    lines: Sequence[Line]


def draw_scaling(panels: Sequence[Panel], path: Path) -> None:
    """Write the figure as PNG: busy shares above, tokens per second and GPU below."""
    height = 1.05 + 2 * PANEL + GAP + 0.5
    width = (WIDTH - LEFT - 0.15 - BETWEEN * (len(panels) - 1)) / len(panels)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(canvas)
        page = Page(canvas, LINE_COLORS)
        page.write(["Simulated utilization of H100 GPUs"], 0.12, 13, INK, "bold")
        page.write(wrapped(NOTE, 112), 0.4, TEXT - 1, FAINT, "normal")
        tops = [page.add_axes(LEFT + at * (width + BETWEEN), 0.5 + PANEL + GAP, width, PANEL)
                for at in range(len(panels))]  # fmt: skip
        lows = [page.add_axes(LEFT + at * (width + BETWEEN), 0.5, width, PANEL)
                for at in range(len(panels))]  # fmt: skip
        for number, (panel, top, low) in enumerate(zip(panels, tops, lows, strict=True)):
            top.set_title(panel.name, fontsize=TEXT + 1, loc="left", color=INK, pad=5)
            _draw_busy(top, panel, named=number == 0)
            _draw_speed(low, panel)
            for axes in (top, low):
                _number_gpus(axes)
                axes.tick_params(labelleft=axes is low or not number)
            top.tick_params(labelbottom=False)
            low.set_xlabel("GPUs", fontsize=TEXT)
        tops[0].set_ylabel("GPU time in use", fontsize=TEXT)
        lows[0].set_ylabel("tokens per second\nand GPU", fontsize=TEXT)
        canvas.savefig(path, facecolor="white")


def _draw_busy(axes: Any, panel: Panel, named: bool) -> None:
    axes.axhline(TARGET, color=INK, lw=0.9, ls=":")
    axes.axvline(AT, color=INK, lw=0.6, ls=":", alpha=0.5)
    for line in panel.lines:
        name = NAMES[line.asynchronous]
        axes.plot(*_points(line.busy), color=LINE_COLORS[name], lw=1.7, marker="o", ms=3.2)
        if named:
            axes.text(
                0.97, NAME_PLACES[name], name, transform=axes.transAxes, fontsize=TEXT - 1,
                color=LINE_COLORS[name], fontweight="bold", ha="right",
            )  # fmt: skip
        if AT in line.busy:
            axes.annotate(
                f"{line.busy[AT]:.0%}", (AT, line.busy[AT]), (0, 6), textcoords="offset points",
                fontsize=TEXT - 1, color=INK, ha="center",
            )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_speed(axes: Any, panel: Panel) -> None:
    for line in panel.lines:
        color = LINE_COLORS[NAMES[line.asynchronous]]
        axes.plot(*_points(line.speed), color=color, lw=1.7, marker="o", ms=3.2)
    axes.set_ylim(0, 1.15 * max((max(o.speed.values(), default=1) for o in panel.lines), default=1))


def _points(values: Mapping[int, float]) -> tuple[list[int], list[float]]:
    return list(values), list(values.values())


def _number_gpus(axes: Any) -> None:
    """A logarithmic axis."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(6, 5600)
    ticks = [8, 64, 512, 4096]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:,}" for tick in ticks])
    axes.grid(True)
