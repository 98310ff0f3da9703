"""Learning curves of runs: one panel per metric, one line per role or policy and arm.

Runs that differ only in the seed form one arm: its line is the mean, with a band from minimum to
maximum. A share of a single run has Wilson's interval over the counted episodes, which does not
cover the variation between seeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.results import TOKENS, Curve, x_values
from pettingllms.runs.scores import wilson
from pettingllms.viewer.sources import ViewedRun

PANELS = {
    "reward": "reward",
    "reward_process": "process reward (per reply)",
    "reward_agent": "agent reward (per role)",
    "reward_team": "team reward",
    "success": "success on training tasks",
    "eval_success": "success on test tasks",
    "sampler_entropy": "sampling entropy",
    "mismatch": "train-inference mismatch",
    "rollout/tokens_per_second": "sampled tokens per second",
}
"""Default panels: titles by metric or by the last part of its name."""
SHARES = ("success", "share")
NUM_POINTS = 200


@dataclass(frozen=True, slots=True)
class Line:
    """One role or policy of one arm."""

    arm: str
    part: str
    """The role or policy; empty for metrics of the whole run, or if all are equal."""
    x: list[float]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric."""

    title: str
    lines: list[Line]
    is_share: bool


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """Metrics, x axis and smoothing of a plot."""

    metrics: Sequence[str] = ()
    """Names such as `mismatch` or `roles/planner/reward`; empty: the default panels."""
    x: str = "step"
    smooth: int = 1


def group_by_arm(runs: Sequence[ViewedRun]) -> dict[str, list[ViewedRun]]:
    """Runs by arm, named after their folders."""
    arms: dict[str, list[ViewedRun]] = {}
    known: dict[str, str] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings.items() if key != "seed"}
        key = repr(settings) if run.settings else str(run.path)
        if key not in known:
            known[key] = _unique_name(run.name, arms)
        arms.setdefault(known[key], []).append(run)
    return arms


def _short_name(key: str) -> str:
    """The metric without the name of its role or policy."""
    return key.rpartition("/")[2] if key.startswith(("roles/", "policies/")) else key


def make_panels(runs: Sequence[ViewedRun], options: PlotOptions) -> list[Panel]:
    """The panels to draw. Missing metrics are skipped, or rejected if requested."""
    rows = {arm: [(run, run.metrics()) for run in some] for arm, some in group_by_arm(runs).items()}
    keys = list(
        dict.fromkeys(k for some in rows.values() for _, r in some for row in r for k in row)
    )
    names = options.metrics or list(PANELS)
    panels = []
    for name in names:
        found = [key for key in keys if name in (key, _short_name(key))]
        if not found and options.metrics:
            known = {key if "/" in name else _short_name(key) for key in keys}
            raise ConfigError("--metric", [f"no run has '{name}'; {nearest(name, known)}"])
        lines = []
        for arm, some in rows.items():
            drawn = [line for key in found if (line := _line(arm, key, some, options)) is not None]
            lines += _merge_equal(drawn)
        if lines:
            panels.append(Panel(PANELS.get(name, name.replace("_", " ")), lines, _is_share(name)))
    return panels


def _line(
    arm: str, key: str, some: Sequence[tuple[ViewedRun, list[dict[str, Any]]]], options: PlotOptions
) -> Line | None:
    part = key.split("/")[1] if key.startswith(("roles/", "policies/")) else ""
    curves = [(run, rows, _curve(rows, key, options)) for run, rows in some]
    curves = [one for one in curves if one[2].x]
    if not curves:
        return None
    if len(curves) == 1:
        run, rows, curve = curves[0]
        low, high = _interval(run, rows, key, curve) if _is_share(key) else ([], [])
        return Line(arm, part, curve.x, curve.y, low, high)
    x, each = over_one_axis([curve for _, _, curve in curves])
    y, low, high = each.mean(0), each.min(0), each.max(0)
    return Line(arm, part, x.tolist(), y.tolist(), low.tolist(), high.tolist())


def _merge_equal(lines: list[Line]) -> list[Line]:
    """Merge identical lines, such as those of roles with a team reward."""
    if len(lines) > 1 and all(line.x == lines[0].x and line.y == lines[0].y for line in lines):
        return [replace(lines[0], part="")]
    return lines


def _curve(rows: Iterable[Mapping[str, Any]], key: str, options: PlotOptions) -> Curve:
    over = TOKENS if options.x == "tokens" else "step"
    rows = [row for row in rows if over in row]
    values = [row[key] for row in rows if row.get(key) is not None]
    starts = [max(0, at + 1 - options.smooth) for at in range(len(values))]
    smooth = [float(np.mean(values[start : at + 1])) for at, start in enumerate(starts)]
    return Curve(x_values(rows, key, over), smooth)


def _interval(
    run: ViewedRun, rows: Iterable[Mapping[str, Any]], key: str, curve: Curve
) -> tuple[list[float], list[float]]:
    """Wilson's interval over the counted episodes or test tasks."""
    counts = [_count(run, row, key) for row in rows if row.get(key) is not None]
    if not all(counts):
        return [], []
    found = [wilson(share, count) for share, count in zip(curve.y, counts, strict=True)]
    return [low for low, _ in found], [high for _, high in found]


def _count(run: ViewedRun, row: Mapping[str, Any], key: str) -> int:
    if key.endswith("eval_success"):
        return 0 if run.config is None else run.config.eval.num_tasks
    return int(row.get("rollout/num_episodes") or 0) if key.endswith("/success") else 0


def over_one_axis(curves: Sequence[Curve]) -> tuple[Any, Any]:
    """Interpolate curves on a common x axis up to the shortest: token counts differ by seed."""
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(min(first, last), last, NUM_POINTS)
    return x, np.array([np.interp(x, curve.x, curve.y) for curve in curves])


def _is_share(name: str) -> bool:
    return name.endswith(SHARES)


def _unique_name(name: str, taken: Mapping[str, object]) -> str:
    names = [name, *(f"{name} ({number})" for number in range(2, len(taken) + 2))]
    return next(one for one in names if one not in taken)


BARS = "▁▂▃▄▅▆▇█"
THOUSAND = 1000


def short(value: float) -> str:
    """A number with three digits; large ones as integers, such as 8,130."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.3g}"


def spark(values: Sequence[float], width: int = 40) -> str:
    """The values as bars, scaled from minimum to maximum; crowded values are averaged."""
    if not values:
        return ""
    size = max(1, math.ceil(len(values) / width))
    means = [
        math.fsum(part) / len(part)
        for at in range(0, len(values), size)
        if (part := values[at : at + size])
    ]
    low, high = min(means), max(means)
    if high == low:
        return BARS[3] * len(means)
    return "".join(BARS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)
