"""The figure of a verifier: ROC curve and calibration."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from pettingllms.experiments.figure import DPI, FAINT, INK, STYLE
from pettingllms.verifier.evaluate import Report

BLUE, ORANGE = "#0A5A96", "#B8480A"


def draw_calibration(report: Report, title: str, path: Path) -> None:
    """Write the ROC curve and the calibration as a PNG."""
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(8.0, 4.4), dpi=DPI)
        FigureCanvasAgg(canvas)
        left: Any = canvas.add_axes((0.08, 0.15, 0.38, 0.62))
        right: Any = canvas.add_axes((0.57, 0.15, 0.38, 0.62))
        for axes in (left, right):
            axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=":")
            axes.set(xlim=(0, 1), ylim=(0, 1))
        if report.roc:
            left.plot(*zip(*report.roc, strict=True), color=BLUE, linewidth=1.8)
        left.set(xlabel="false positive rate", ylabel="true positive rate")
        _head(
            left, f"ROC: area {_number(report.auc)}, within questions {_number(report.auc_within)}"
        )
        largest = max(one.count for one in report.bins)
        right.bar(
            [one.score for one in report.bins],
            [one.count / largest * 0.25 for one in report.bins],
            width=0.06,
            color=FAINT,
            alpha=0.35,
        )
        right.plot(
            [one.score for one in report.bins],
            [one.accuracy for one in report.bins],
            color=ORANGE,
            marker="o",
            markersize=4,
        )
        right.set(xlabel="predicted probability", ylabel="share correct")
        _head(right, f"Calibration: ECE {report.ece:.3f}, Brier {report.brier:.3f}")
        canvas.text(0.02, 0.93, title, fontsize=12, color=INK, fontweight="bold")
        note = f"{report.num_answers:,} answers. Dotted: chance, and perfect calibration."
        canvas.text(0.02, 0.875, f"{note} Bars: number of answers.", fontsize=8, color=FAINT)
        canvas.savefig(path, facecolor="white")


def _head(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=9, loc="left", color=INK)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
