"""The figure of a payoff matrix, sorted by rating.

A cell shows the score of the row's player against the column's player as a percentage of the
points: blue above 50%, orange below, white in the middle.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from pettingllms.experiments.figure import DPI, FAINT, INK, STYLE
from pettingllms.league.standings import Standings

COLORS = LinearSegmentedColormap.from_list(
    "score", ["#B8480A", "#EE9A5B", "#FBFAF7", "#6FA9D6", "#0A5A96"]
)
"""Orange to blue, safe for color blindness."""
LETTER = 0.075
"""Width of a name's character in inches."""
HEAD, FOOT, KEY = 0.75, 0.5, 0.95
"""Margins in inches: above the column names, below the cells, and to their right."""


def draw_heat_map(found: Standings, title: str, path: Path) -> None:
    """Write the matrix as a PNG."""
    names = [_short(name) for name in found.players]
    count = len(names)
    cell = 0.62 if count <= 12 else max(0.3, 7.5 / count)
    left = 0.45 + max(len(name) for name in names) * LETTER + 1.1
    top = HEAD + 0.25
    width, height = left + count * cell + KEY, top + count * cell + FOOT
    width = max(width, 6.0)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(width, height), dpi=DPI)
        FigureCanvasAgg(canvas)
        box = (left / width, FOOT / height, count * cell / width, count * cell / height)
        axes: Any = canvas.add_axes(box)
        axes.set(xlim=(0, count), ylim=(count, 0), xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(False)
        counts = _counts(found)
        _draw_cells(axes, found, cell, show_games=len(counts) > 1)
        _write_names(axes, found, names, left / cell, cell)
        _draw_key(canvas, (left + count * cell + 0.3) / width, box)
        _write(canvas, 0.15, 0.12, title, 12, INK, "bold")
        games = "below, games" if len(counts) > 1 else f"{counts[0]} games per pair"
        note = f"Score of the row's player against the column's; a draw counts half; {games}."
        _write(canvas, 0.15, 0.40, note, 8, FAINT)
        foot = f"{found.num_games:,} games. {found.verdict}"
        _write(canvas, 0.15, height - 0.3, foot + " ±: two standard deviations.", 8, FAINT)
        canvas.savefig(path, facecolor="white")


def _counts(found: Standings) -> list[int]:
    """Distinct numbers of games per pair."""
    rows = found.payoff.rows.values()
    return sorted({tally.num_games for row in rows for tally in row.values()}) or [0]


def _draw_cells(axes: Any, found: Standings, cell: float, show_games: bool) -> None:
    shade = Normalize(0.0, 1.0)
    for row, one in enumerate(found.players):
        for column, other in enumerate(found.players):
            tally = found.payoff.between(one, other)
            if one == other or not tally.num_games:
                _fill(axes, column, row, "#F3F3F3")
                continue
            _fill(axes, column, row, COLORS(shade(tally.score)))
            ink = "white" if abs(tally.score - 0.5) > 0.33 else INK
            large = min(10.0, cell * 16)
            shift = 0.08 if show_games and cell > 0.45 else 0
            axes.text(
                column + 0.5, row + 0.5 - shift, f"{tally.score:.0%}".removesuffix("%"),
                ha="center", va="center", fontsize=large, color=ink,
            )  # fmt: skip
            if shift:
                axes.text(
                    column + 0.5, row + 0.79, f"{tally.num_games}",
                    ha="center", va="center", fontsize=5.5, color=ink, alpha=0.75,
                )  # fmt: skip


def _fill(axes: Any, column: int, row: int, color: Any) -> None:
    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=color, edgecolor="white", lw=2))


def _write_names(
    axes: Any, found: Standings, names: Sequence[str], left: float, cell: float
) -> None:
    for at, row in enumerate(found.rows()):
        rating = f"{row['rating']:.1f} ± {row['margin']:.1f}"
        axes.text(-0.12 / cell, at + 0.5, rating, ha="right", va="center", fontsize=8, color=FAINT)
        for x, text, color in ((0.15, str(at + 1), FAINT), (0.45, names[at], INK)):
            axes.text(
                x / cell - left, at + 0.5, text, ha="left", va="center", fontsize=9.5, color=color
            )
        axes.text(at + 0.5, -0.14 / cell, str(at + 1), ha="center", va="center", fontsize=9.5)
    axes.text(-0.12 / cell, -0.14 / cell, "rating", ha="right", va="center", fontsize=8,
              color=FAINT)  # fmt: skip


def _draw_key(canvas: Canvas, left: float, box: tuple[float, float, float, float]) -> None:
    axes = canvas.add_axes((left, box[1], 0.12 / canvas.get_figwidth(), box[3]))
    key = mpl.colorbar.ColorbarBase(axes, cmap=COLORS, norm=Normalize(0, 100))
    key.set_ticks([0, 25, 50, 75, 100], labels=["0", "25", "50", "75", "100%"])
    key.outline.set_visible(False)
    axes.tick_params(length=0, labelsize=8)


def _write(
    canvas: Canvas, x: float, below: float, text: str, size: float, color: str, face: Any = "normal"
) -> None:
    at = (x / canvas.get_figwidth(), 1 - below / canvas.get_figheight())
    style: dict[str, Any] = {"fontsize": size, "color": color, "fontweight": face}
    canvas.text(*at, text, va="top", ha="left", **style)


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"…{name[-27:]}"
