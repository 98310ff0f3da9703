"""Select what the figure of a suite shows."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pettingllms.evaluation.suites.results import Result
from pettingllms.evaluation.suites.suite_report import Report

if TYPE_CHECKING:
    from pettingllms.experiments.bench_figure import Panel

FIGURE = "figure.png"


def draw_report(report: Report, path: Path) -> bool:
    """Draw the figure; False without matplotlib or results."""
    measured = [result for result in report.results if result.has_number]
    if not measured or find_spec("matplotlib") is None:
        return False
    from pettingllms.experiments.bench_figure import draw_benches

    note = (
        f"Success rate, {_numbers(measured)}. Lines: 95% intervals over tasks. Below: success by "
        "tokens per task; solid: any episode succeeds; dashed: the majority answer is correct; "
        "dotted: the budget of the comparison."
    )
    panels = [_panel(result) for result in measured]
    compared = any(panel.budget for panel in panels)
    draw_benches(
        f"{report.suite.title}: {report.evaluated.name}",
        note if compared else note.partition(" Below")[0],
        panels,
        path,
    )
    return True


def _numbers(results: list[Result]) -> str:
    samples = {found.num_samples for result in results for found in result.forms.values()}
    tasks = {found.num_tasks for result in results for found in result.forms.values()}
    return f"{_range(tasks)} tasks, {_range(samples)} episodes per task"


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _panel(result: Result) -> "Panel":
    from pettingllms.experiments.bench_figure import Curve, Panel

    shares = {form: found.avg for form, found in result.forms.items() if found.avg is not None}
    equal = result.equal
    curves = [
        Curve(form, [k * found.tokens for k in points], [points[k] for k in points], voted)
        for form, found in result.forms.items()
        for voted, points in ((False, found.pass_at), (True, found.majority_at))
        if points and equal is not None
    ]
    unit = equal.unit if equal else ""
    return Panel(result.name, shares, curves, equal.budget if equal else None, unit)
