"""What an experiment came to: every number, the table, the figure, and whether floors hold."""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.difference import differences
from pettingllms.experiments.experiment import Experiment
from pettingllms.experiments.plan import Order, Plan, PlannedArm, make_plan, planned_seeds
from pettingllms.experiments.results import (
    Curve,
    Result,
    curve_of,
    drawn_in,
    is_based_on,
    is_of,
    is_same_basis,
    metric_of,
    rows_of,
)
from pettingllms.experiments.table import cell_of, made_by, make_table
from pettingllms.runs.folder import write_whole

RESULTS, TABLE, FIGURE, SLIDES = "results.json", "table.md", "figure.png", "slides.pdf"
SHARES = ("success", "share")
"""Ends of the names of metrics that are shares."""
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that is there."""

    results: list[Result] = field(default_factory=list)
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)
    """By arm, then by seed."""

    def has(self, arm: str, seed: int) -> bool:
        """Whether an arm is there with this seed."""
        return self.find(arm, seed) is not None

    def find(self, arm: str, seed: int) -> Result | None:
        """What an arm came to with this seed, if it is there."""
        return next((one for one in self.results if (one.arm, one.seed) == (arm, seed)), None)

    def add(self, result: Result, curve: Curve | None) -> None:
        """Put a result beside the others."""
        self.results.append(result)
        if curve is not None:
            self.curves.setdefault(result.arm, {})[result.seed] = curve


def read_joined(order: Order, notify: Notify) -> Found:
    """Every result that was run elsewhere, and was made as it is asked for now."""
    found = Found()
    for path in order.joined:
        _join(order, path, found, notify)
    return found


def collect(order: Order, joined: Found, notify: Notify) -> Found:
    """Every result that is there, of any seed, and was made as it is asked for now; what was also
    run elsewhere is taken from here."""
    found = Found()
    _collect_runs(order, found, notify)
    for result in joined.results:
        if not found.has(result.arm, result.seed):
            found.add(result, joined.curves.get(result.arm, {}).get(result.seed))
    found.results.sort(key=lambda one: one.seed)
    return found


def _collect_runs(order: Order, found: Found, notify: Notify) -> None:
    for seed in planned_seeds(order.out):
        plan = make_plan(order, seed)
        same_models = is_based_on(plan, plan.basis(order.experiment.model))
        for arm in plan.arms:
            result = Result.read(arm.folder)
            if result is None:
                continue
            if not same_models or not is_of(arm):
                notify(f"left out: {arm.folder} was made with another configuration")
                continue
            if problem := result.problem(arm):
                notify(f"left out: {arm.folder} {problem}")
                continue
            _keep_asked(result, arm)
            drawn = arm.spec.trained and order.experiment.figure.y
            found.add(result, _curve(order, arm, notify) if drawn else None)


def _join(order: Order, path: Path, found: Found, notify: Notify) -> None:
    """Add what a file of numbers holds."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        results = [Result.of(one) for one in data["results"]]
        bases = [data["basis"][str(one.seed)] for one in results]
        configs = [data["configs"][one.arm][str(one.seed)] for one in results]
        curves, figure = data["curves"], data.get("figure")
    except (OSError, ValueError, KeyError, TypeError) as error:
        wrong = f"cannot be joined, as it is no {RESULTS} of `reproduce`: {error!r}"
        raise ConfigError(str(path), [wrong]) from error
    if curves and figure != drawn_in(order.experiment.figure):
        notify(f"left out: curves in {path}, which are of another figure: {figure}")
        curves = {}
    plans = {seed: make_plan(order, seed) for seed in {result.seed for result in results}}
    for result, made_of, config in zip(results, bases, configs, strict=True):
        seed, at = result.seed, f"{path}, seed {result.seed}, '{result.arm}'"
        plan = plans[seed]
        arm = next((arm for arm in plan.arms if arm.spec.name == result.arm), None)
        if arm is None or found.has(result.arm, seed):
            continue
        basis = plan.basis(order.experiment.model)
        if not _is_made_alike(plan, (made_of, config), basis, arm):
            notify(f"left out: {at} was made with another configuration")
            continue
        if problem := result.problem(arm):
            notify(f"left out: {at} {problem}")
            continue
        _keep_asked(result, arm)
        curve = curves.get(result.arm, {}).get(str(seed))
        found.add(result, Curve(**curve) if curve else None)


def _is_made_alike(plan: Plan, stored: tuple[str, Any], basis: str, arm: PlannedArm) -> bool:
    """Whether a stored basis and configuration are those of an arm; if they are refused today, they
    are not."""
    made_of, config = stored
    try:
        return is_same_basis(plan, made_of, basis) and bool(plan.read(config) == arm.config)
    except ConfigError:
        return False


def _keep_asked(result: Result, arm: PlannedArm) -> None:
    """Leave out evaluations that are no longer asked for."""
    asked_for = [cell.spec.name for cell in arm.evaluations if result.has(cell)]
    result.evaluations = {name: result.evaluations[name] for name in asked_for}


def _curve(order: Order, arm: PlannedArm, notify: Notify) -> Curve:
    figure, rows = order.experiment.figure, rows_of(arm.folder)
    metric = metric_of(figure, arm)
    curve = curve_of(rows, metric, figure)
    if not curve.x:
        keys = {key for row in rows for key in row}
        notify(f"no line for {arm.folder}: it has no metric '{metric}'; {nearest(metric, keys)}")
    return curve


def write_report(order: Order, found: Found, notify: Notify) -> None:
    """Write every number, the table and the figure."""
    order.out.mkdir(parents=True, exist_ok=True)
    write_whole(order.out / RESULTS, json.dumps(_numbers(order, found), indent=1))
    write_whole(order.out / TABLE, make_table(order.experiment, found.results))
    if find_spec("matplotlib") is None:
        notify("no figure, as matplotlib is not installed; pip install 'pettingllms[figures]'")
        return
    _draw(order.experiment, found, order.out)


def shortfalls(order: Order, found: Found, seeds: Sequence[int]) -> list[str]:
    """What is not as good as it must be, in words; no other seeds make up for these."""
    return list(_shortfalls(order, [one for one in found.results if one.seed in seeds]))


def _shortfalls(order: Order, results: Sequence[Result]) -> Iterator[str]:
    columns = {column.name: column for column in order.experiment.evaluations}
    for floor in order.floors:
        cell = cell_of(results, floor.arm, columns[floor.evaluation])
        what = f"'{floor.arm}', '{floor.evaluation}'"
        if cell is None:
            yield f"{what}: no number, and a bound is set for it"
        elif floor.at_least is not None and cell.value < floor.at_least:
            yield f"{what}: {cell.value:.3f} is below the floor of {floor.at_least:g}"
        elif floor.at_most is not None and cell.value > floor.at_most:
            yield f"{what}: {cell.value:.3f} is above the bound of {floor.at_most:g}"


def redraw(experiment: Experiment, folder: Path) -> None:
    """Make table, figure and slides again from the results.json of a folder, whatever
    configurations its numbers are of."""
    data = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    found = Found([Result.of(one) for one in deepcopy(data["results"])])
    drawn = drawn_in(experiment.figure)
    late = "points" not in (data.get("figure") or {}) and drawn["points"] == "start of step"
    for arm, of_arm in data["curves"].items():
        for curve in of_arm.values():
            if late:  # written when a point was at the end of the step that it was played in
                curve["x"] = [0.0, *curve["x"][:-1]]
        found.curves[arm] = {int(seed): Curve(**curve) for seed, curve in of_arm.items()}
    numbers = data | _summary(experiment, found) | {"figure": drawn}
    write_whole(folder / RESULTS, json.dumps(numbers, indent=1))
    write_whole(folder / TABLE, make_table(experiment, found.results))
    _draw(experiment, found, folder)


def _summary(experiment: Experiment, found: Found) -> dict[str, Any]:
    """What all results come to together."""
    return {
        "table": [
            {"arm": arm.name, "evaluation": column.name, "measure": column.measure, **asdict(cell)}
            for arm in experiment.arms
            for column in experiment.evaluations
            if (cell := cell_of(found.results, arm.name, column)) is not None
        ],
        "differences": [asdict(one) for one in differences(experiment, found.results)],
    }


def _numbers(order: Order, found: Found) -> dict[str, Any]:
    experiment = order.experiment
    plans = {seed: make_plan(order, seed) for seed in {one.seed for one in found.results}}
    return {
        "title": experiment.title,
        "question": experiment.question,
        "command": order.command,
        **_summary(experiment, found),
        "results": [asdict(result) for result in found.results],
        "basis": {seed: plan.basis(experiment.model) for seed, plan in plans.items()},
        "configs": {
            arm.name: {
                seed: plan.written(planned.config)
                for seed, plan in plans.items()
                for planned in plan.arms
                if planned.spec.name == arm.name
            }
            for arm in experiment.arms
        },
        "figure": drawn_in(experiment.figure),
        "curves": {
            arm: {seed: asdict(curve) for seed, curve in of_arm.items()}
            for arm, of_arm in found.curves.items()
        },
    }


def _draw(experiment: Experiment, found: Found, out: Path) -> None:
    from pettingllms.experiments.figure import Bars, Lines, Picture, bars_note, draw
    from pettingllms.experiments.slides import Deck, draw_slides

    figure = experiment.figure
    curves = {
        arm: [_from_start(experiment, found, arm, seed, curve) for seed, curve in some.items()]
        for arm, of_arm in found.curves.items()
        if (some := {seed: curve for seed, curve in of_arm.items() if curve.x})
    }
    lines = Lines(
        curves,
        x_label="sampled tokens" if figure.x == "tokens" else "step",
        y_label=figure.y_label or figure.y.rpartition("/")[2].replace("_", " "),
        is_share=figure.y.endswith(SHARES),
    )
    bars = [
        Bars(
            column.name,
            {
                arm.name: cell
                for arm in experiment.arms
                if (cell := cell_of(found.results, arm.name, column)) is not None
            },
            is_share=column.is_share,
        )
        for column in experiment.evaluations
    ]
    drawn = [panel for panel in bars if panel.name in figure.bars]
    num_seeds = len({result.seed for result in found.results})
    num_drawn = len({seed for some in found.curves.values() for seed in some if some[seed].x})
    several = f"Lines: mean over {num_drawn} seeds; bands: from the lowest to the highest."
    lined = "Lines: one seed." if num_drawn == 1 else several
    notes = ["One seed."] if num_seeds == 1 else [lined] if curves else []
    notes += [f"At 0: '{figure.start}' before training."] if curves and figure.start else []
    notes += [bars_note(drawn)] if drawn else []
    arms = [arm.name for arm in experiment.arms]
    picture = Picture(experiment.title, " ".join(notes), arms, lines if curves else None, drawn)
    if curves or drawn:
        draw(picture, out / FIGURE)
    if found.results:
        about = {arm.name: arm.about for arm in experiment.arms if arm.about}
        costs = [line.removeprefix("- ").replace("`", "") for line in made_by(found.results)]
        deck = Deck(experiment.question, about, costs, experiment.limits)
        draw_slides(deck, replace(picture, bars=bars), out / SLIDES)


def _from_start(experiment: Experiment, found: Found, arm: str, seed: int, curve: Curve) -> Curve:
    """A curve with the value before training at 0, where an evaluation of another arm has it."""
    column = experiment.figure.start
    name = next((one.start for one in experiment.arms if one.name == arm), "")
    start = found.find(name, seed) if name and column else None
    if start is None or column not in start.evaluations or not curve.x[0]:
        return curve
    return Curve([0.0, *curve.x], [start.evaluations[column].measured.value, *curve.y])
