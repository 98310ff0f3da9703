"""Figures show what their captions promise, over axes that hold the data and no more."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from pettingllms.experiments import report
from pettingllms.experiments.difference import Mean
from pettingllms.experiments.experiment import load_experiment
from pettingllms.experiments.figure import COLORS, Bars, Lines, Page, Picture, bars_note
from pettingllms.experiments.repetition import read_results
from pettingllms.experiments.report import Collected
from pettingllms.experiments.results import Curve

ROOT = Path(__file__).parents[3]
SHARES = Bars("won", {"a": Mean(0.24, 0.18, 0.30, "t", 3), "b": Mean(0.96, 0.9, 1, "t", 3)}, True)
LOST, GAINED = Mean(-0.3, None, None, "none", 1), Mean(1.9, 1, 2.4, "t", 3)
POINTS = Bars("points", {"a": LOST, "b": GAINED}, False)


def page() -> Page:
    canvas = Canvas(figsize=(8, 4))
    FigureCanvasAgg(canvas)
    return Page(canvas, dict(zip("ab", COLORS, strict=False)))


def drawn(bars: list[Bars]) -> list[Any]:
    made = page()
    made.draw_bars(Picture("T", "", ["a", "b"], bars=bars), [[panel.name] for panel in bars], 0.3)
    return made.canvas.axes


@pytest.mark.parametrize("num_panels", [1, 2, 4])
def test_the_axis_of_a_share_ends_at_all(num_panels: int) -> None:
    for axes in drawn([SHARES] * num_panels):
        assert axes.spines["bottom"].get_bounds() == (0.0, 1.0)
        assert max(axes.get_xticks()) == 1.0


def test_the_axis_of_a_number_ends_near_its_data() -> None:
    (axes,) = drawn([POINTS])
    low, high = axes.spines["bottom"].get_bounds()
    assert -0.5 < low < -0.3
    assert 2.4 <= high <= 2.4 + 0.15 * 2.7
    assert all(low <= tick <= high for tick in axes.get_xticks())


def test_lines_fill_their_axis_from_the_first_point_on() -> None:
    made = page()
    curves = {"a": [Curve([40.0, 80.0], [0.5, 0.6])], "b": [Curve([20.0, 90.0], [0.1, 0.9])]}
    made.draw_lines(Lines(curves, "tokens", "won"), 0.5)
    assert made.canvas.axes[0].get_xlim() == (20.0, 90.0)


def test_a_caption_promises_the_intervals_that_are_drawn() -> None:
    none = Bars("x", {"a": Mean(0.5, None, None, "none", 1)}, False)
    tasks = Bars("x", {"a": Mean(0.5, 0.4, 0.6, "wilson", 1)}, True)
    assert bars_note([none]) == "Bars: without intervals."
    assert bars_note([tasks, none]) == "Bars: black lines: 95% intervals over test tasks."
    assert bars_note([SHARES]) == "Bars: mean over seeds; black lines: 95% intervals over seeds."


def test_a_curve_of_evaluations_begins_with_the_untrained_arm_of_its_seed() -> None:
    experiment = load_experiment(ROOT / "experiments" / "kuhn_poker")
    found = Collected()
    shipped = read_results(ROOT / "docs" / "results" / "kuhn_poker" / "results.json")
    found.results.extend(shipped)
    curve = Curve([100.0], [0.2])
    start = report._from_start(experiment, found, "league", 2, curve)
    before = next(r for r in shipped if (r.arm, r.seed) == ("untrained", 2))
    assert start.x == [0.0, 100.0]
    assert start.y == [before.evaluations["NashConv"].measured.value, 0.2]
    assert report._from_start(experiment, found, "untrained", 2, curve) == curve
