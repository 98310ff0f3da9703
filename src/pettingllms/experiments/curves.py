"""How runs went, as panels of lines: one panel a metric, one line a role or policy of an arm.

Runs whose configurations differ by their seed alone are seeds of one arm: their line is the mean,
with a band from the lowest to the highest. A share of a run that stands alone has Wilson's interval
over what was counted, which says how well that step was measured and nothing about other seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.results import TOKENS, Curve, places_of
from pettingllms.runs.scores import wilson
from pettingllms.viewer.sources import ViewedRun

PANELS = {
    "reward": "reward",
    "reward_process": "reward for replies (process)",
    "reward_agent": "reward of a role (agent)",
    "reward_team": "reward of all (team)",
    "success": "success in training",
    "eval_success": "success on test tasks",
    "sampler_entropy": "entropy of sampling",
    "mismatch": "train-inference mismatch",
    "rollout/tokens_per_second": "sampled tokens a second",
}
"""What is drawn if nothing is asked for, by the metric or the end of its name."""
SHARES = ("success", "share")
NUM_POINTS = 200


@dataclass(frozen=True, slots=True)
class Line:
    """One role or policy of one arm."""

    arm: str
    part: str
    """The role or policy; empty for what is of the whole run, or of all alike."""
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
class Wish:
    """What is to be drawn, and over what."""

    metrics: Sequence[str] = ()
    """Names such as `gap` or `roles/planner/reward`; none: the usual ones."""
    x: str = "step"
    smooth: int = 1


def arms_of(runs: Sequence[ViewedRun]) -> dict[str, list[ViewedRun]]:
    """Runs by arm, named by their folders."""
    arms: dict[str, list[ViewedRun]] = {}
    known: dict[str, str] = {}
    for run in runs:
        asked = {key: value for key, value in run.settings.items() if key != "seed"}
        mark = repr(asked) if run.settings else str(run.path)
        if mark not in known:
            known[mark] = _free(run.name, arms)
        arms.setdefault(known[mark], []).append(run)
    return arms


def _in_short(key: str) -> str:
    """What a metric of roles or of policies is called in all of them."""
    return key.rpartition("/")[2] if key.startswith(("roles/", "policies/")) else key


def panels_of(runs: Sequence[ViewedRun], wish: Wish) -> list[Panel]:
    """Everything that is drawn; metrics that no run has are left out, or refused if asked for."""
    rows = {arm: [(run, run.metrics()) for run in some] for arm, some in arms_of(runs).items()}
    keys = list(
        dict.fromkeys(k for some in rows.values() for _, r in some for row in r for k in row)
    )
    names = wish.metrics or list(PANELS)
    panels = []
    for name in names:
        found = [key for key in keys if name in (key, _in_short(key))]
        if not found and wish.metrics:
            known = {key if "/" in name else _in_short(key) for key in keys}
            raise ConfigError("--metric", [f"no run has '{name}'; {nearest(name, known)}"])
        lines = []
        for arm, some in rows.items():
            drawn = [line for key in found if (line := _line(arm, key, some, wish)) is not None]
            lines += _as_one(drawn)
        if lines:
            panels.append(Panel(PANELS.get(name, name.replace("_", " ")), lines, _is_share(name)))
    return panels


def _line(
    arm: str, key: str, some: Sequence[tuple[ViewedRun, list[dict[str, Any]]]], wish: Wish
) -> Line | None:
    part = key.split("/")[1] if key.startswith(("roles/", "policies/")) else ""
    curves = [(run, rows, _curve(rows, key, wish)) for run, rows in some]
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


def _as_one(lines: list[Line]) -> list[Line]:
    """Roles that all went the same way, as those of a team do, are one line."""
    if len(lines) > 1 and all(line.x == lines[0].x and line.y == lines[0].y for line in lines):
        return [replace(lines[0], part="")]
    return lines


def _curve(rows: Iterable[Mapping[str, Any]], key: str, wish: Wish) -> Curve:
    over = TOKENS if wish.x == "tokens" else "step"
    rows = [row for row in rows if over in row]
    values = [row[key] for row in rows if row.get(key) is not None]
    starts = [max(0, at + 1 - wish.smooth) for at in range(len(values))]
    smooth = [float(np.mean(values[start : at + 1])) for at, start in enumerate(starts)]
    return Curve(places_of(rows, key, over), smooth)


def _interval(
    run: ViewedRun, rows: Iterable[Mapping[str, Any]], key: str, curve: Curve
) -> tuple[list[float], list[float]]:
    """Wilson's, over the episodes or test tasks that a share was counted in."""
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
    """Curves over one axis, as far as all of them go: seeds do not sample just as many tokens."""
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(min(first, last), last, NUM_POINTS)
    return x, np.array([np.interp(x, curve.x, curve.y) for curve in curves])


def _is_share(name: str) -> bool:
    return name.endswith(SHARES)


def _free(name: str, taken: Mapping[str, object]) -> str:
    names = [name, *(f"{name} ({number})" for number in range(2, len(taken) + 2))]
    return next(one for one in names if one not in taken)
