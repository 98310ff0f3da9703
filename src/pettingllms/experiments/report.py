"""Collect the results of an experiment; write numbers, table and figure; check floors."""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pettingllms.config.renames import EXPERIMENT_NAMES
from pettingllms.errors import ConfigError, nearest
from pettingllms.experiments.contrasts import changed_seeds, effects, planned_section
from pettingllms.experiments.difference import differences
from pettingllms.experiments.experiment import Experiment
from pettingllms.experiments.plan import (
    ExperimentRequest,
    Plan,
    PlannedArm,
    make_plan,
    planned_seeds,
)
from pettingllms.experiments.preregistration import Preregistration
from pettingllms.experiments.results import (
    Curve,
    Result,
    figure_key,
    figure_metric,
    has_same_config,
    is_based_on,
    is_same_basis,
    make_curve,
    read_metrics,
    to_json,
)
from pettingllms.experiments.stage_jobs import verifier_results, verifier_table
from pettingllms.experiments.table import make_table, mean_cell, provenance
from pettingllms.runs.folder import write_whole

RESULTS, TABLE, FIGURE, SLIDES = "results.json", "table.md", "figure.png", "slides.pdf"
SHARES = ("success", "share")
"""Suffixes of metrics that are shares."""
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Collected:
    """All results and learning curves."""

    results: list[Result] = field(default_factory=list)
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)
    """By arm, then by seed."""

    def has(self, arm: str, seed: int) -> bool:
        """Whether there is a result for this arm and seed."""
        return self.find(arm, seed) is not None

    def find(self, arm: str, seed: int) -> Result | None:
        """The result of an arm and seed, if there is one."""
        return next((one for one in self.results if (one.arm, one.seed) == (arm, seed)), None)

    def add(self, result: Result, curve: Curve | None) -> None:
        """Add a result with its learning curve."""
        self.results.append(result)
        if curve is not None:
            self.curves.setdefault(result.arm, {})[result.seed] = curve


def read_joined(request: ExperimentRequest, notify: Notify) -> Collected:
    """Results from other machines that have the same config."""
    found = Collected()
    for path in request.joined:
        _join(request, path, found, notify)
    return found


def collect(request: ExperimentRequest, joined: Collected, notify: Notify) -> Collected:
    """All results with the current config, of any seed. Local results take precedence over joined
    ones."""
    found = Collected()
    _collect_runs(request, found, notify)
    for result in joined.results:
        if not found.has(result.arm, result.seed):
            found.add(result, joined.curves.get(result.arm, {}).get(result.seed))
    found.results.sort(key=lambda one: one.seed)
    return found


def _collect_runs(request: ExperimentRequest, found: Collected, notify: Notify) -> None:
    for seed in planned_seeds(request.out):
        plan = make_plan(request, seed)
        same_models = is_based_on(plan, plan.basis(request.experiment.model))
        for arm in plan.arms:
            result = Result.read(arm.folder)
            if result is None:
                continue
            if not same_models or not has_same_config(arm):
                notify(f"skipped: {arm.folder} was made with another configuration")
                continue
            if problem := result.problem(arm):
                notify(f"skipped: {arm.folder} {problem}")
                continue
            _keep_planned(result, arm)
            drawn = arm.spec.trained and request.experiment.figure.y
            found.add(result, _curve(request, arm, notify) if drawn else None)


def _join(request: ExperimentRequest, path: Path, found: Collected, notify: Notify) -> None:
    """Add the results of a results.json."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        results = [Result.from_json(one) for one in data["results"]]
        bases = [data["basis"][str(one.seed)] for one in results]
        stored = _renamed(data["configs"])
        configs = [stored[one.arm][str(one.seed)] for one in results]
        curves, figure = _renamed(data["curves"]), data.get("figure")
    except (OSError, ValueError, KeyError, TypeError) as error:
        wrong = f"is not a {RESULTS} of `reproduce`: {error!r}"
        raise ConfigError(str(path), [wrong]) from error
    if curves and figure != figure_key(request.experiment.figure):
        notify(f"skipped: curves in {path}, which have another figure: {figure}")
        curves = {}
    plans = {seed: make_plan(request, seed) for seed in {result.seed for result in results}}
    for result, stored_basis, config in zip(results, bases, configs, strict=True):
        seed, at = result.seed, f"{path}, seed {result.seed}, '{result.arm}'"
        plan = plans[seed]
        arm = next((arm for arm in plan.arms if arm.spec.name == result.arm), None)
        if arm is None or found.has(result.arm, seed):
            continue
        basis = plan.basis(request.experiment.model)
        if not _has_same_settings(plan, (stored_basis, config), basis, arm):
            notify(f"skipped: {at} was made with another configuration")
            continue
        if problem := result.problem(arm):
            notify(f"skipped: {at} {problem}")
            continue
        _keep_planned(result, arm)
        curve = curves.get(result.arm, {}).get(str(seed))
        found.add(result, Curve(**curve) if curve else None)


def _has_same_settings(plan: Plan, stored: tuple[str, Any], basis: str, arm: PlannedArm) -> bool:
    """Whether a stored basis and config are those of an arm; invalid ones are not."""
    stored_basis, config = stored
    try:
        return is_same_basis(plan, stored_basis, basis) and bool(plan.read(config) == arm.config)
    except ConfigError:
        return False


def _keep_planned(result: Result, arm: PlannedArm) -> None:
    """Drop evaluations that are no longer planned."""
    planned = [cell.spec.name for cell in arm.evaluations if result.has(cell)]
    result.evaluations = {name: result.evaluations[name] for name in planned}


def _renamed(by_arm: dict[str, Any]) -> dict[str, Any]:
    return {EXPERIMENT_NAMES.get(arm, arm): value for arm, value in by_arm.items()}


def _curve(request: ExperimentRequest, arm: PlannedArm, notify: Notify) -> Curve:
    figure, rows = request.experiment.figure, read_metrics(arm.folder)
    metric = figure_metric(figure, arm)
    curve = make_curve(rows, metric, figure)
    if not curve.x:
        keys = {key for row in rows for key in row}
        notify(f"no learning curve for {arm.folder}: no metric '{metric}'; {nearest(metric, keys)}")
    return curve


def write_report(request: ExperimentRequest, found: Collected, notify: Notify) -> None:
    """Write results.json, the table and the figure."""
    request.out.mkdir(parents=True, exist_ok=True)
    write_whole(request.out / RESULTS, to_json(_numbers(request, found)))
    verifiers = verifier_results(request, {one.seed for one in found.results})
    page = make_page(request.experiment, found.results, request.preregistration)
    page += verifier_table(verifiers)
    write_whole(request.out / TABLE, page)
    if find_spec("matplotlib") is None:
        notify("no figure: matplotlib is not installed; pip install 'pettingllms[figures]'")
        return
    _draw(request.experiment, found, request.out)


def make_page(
    experiment: Experiment, results: Sequence[Result], preregistration: Preregistration | None
) -> str:
    """The table, with the planned contrasts if the experiment has a plan."""
    if preregistration is None:
        return make_table(experiment, results)
    return make_table(experiment, results, planned_section(preregistration, experiment, results))


def shortfalls(request: ExperimentRequest, found: Collected, seeds: Sequence[int]) -> list[str]:
    """Messages about missed floors, over the given seeds only."""
    return list(_shortfalls(request, [one for one in found.results if one.seed in seeds]))


def _shortfalls(request: ExperimentRequest, results: Sequence[Result]) -> Iterator[str]:
    columns = {column.name: column for column in request.experiment.evaluations}
    for floor in request.floors:
        cell = mean_cell(results, floor.arm, columns[floor.evaluation])
        what = f"'{floor.arm}', '{floor.evaluation}'"
        if cell is None:
            yield f"{what}: no result, but a floor is set"
        elif floor.at_least is not None and cell.value < floor.at_least:
            yield f"{what}: {cell.value:.3f} is below the floor of {floor.at_least:g}"
        elif floor.at_most is not None and cell.value > floor.at_most:
            yield f"{what}: {cell.value:.3f} is above the bound of {floor.at_most:g}"


def redraw(
    experiment: Experiment, folder: Path, preregistration: Preregistration | None = None
) -> None:
    """Write the table, figure and slides again from the results.json of a folder, regardless of the
    configs of its results."""
    data = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    found = Collected([Result.from_json(one) for one in deepcopy(data["results"])])
    drawn = figure_key(experiment.figure)
    late = "points" not in (data.get("figure") or {}) and drawn["points"] == "start of step"
    for arm, of_arm in _renamed(data["curves"]).items():
        for curve in of_arm.values():
            if late:  # an old file with points at the end of the step
                curve["x"] = [0.0, *curve["x"][:-1]]
        found.curves[arm] = {int(seed): Curve(**curve) for seed, curve in of_arm.items()}
    numbers = data | _summary(experiment, found, preregistration) | {"figure": drawn}
    write_whole(folder / RESULTS, to_json(numbers))
    page = make_page(experiment, found.results, preregistration)
    page += verifier_table(data.get("verifiers", {}))
    _draw(experiment, found, folder)


def _summary(
    experiment: Experiment, found: Collected, preregistration: Preregistration | None
) -> dict[str, Any]:
    """The cells of the table, the differences, and the planned contrasts."""
    planned: dict[str, Any] = {}
    if preregistration is not None:
        planned["plan"] = {
            "digest": preregistration.digest,
            "changed_seeds": changed_seeds(preregistration, found.results),
            **preregistration.model_dump(mode="json"),
        }
        planned["contrasts"] = [asdict(one) for one in effects(preregistration, found.results)]
    return planned | {
        "table": [
            {"arm": arm.name, "evaluation": column.name, "measure": column.measure, **asdict(cell)}
            for arm in experiment.arms
            for column in experiment.evaluations
            if (cell := mean_cell(found.results, arm.name, column)) is not None
        ],
        "differences": [asdict(one) for one in differences(experiment, found.results)],
    }


def _numbers(request: ExperimentRequest, found: Collected) -> dict[str, Any]:
    experiment = request.experiment
    plans = {seed: make_plan(request, seed) for seed in {one.seed for one in found.results}}
    return {
        "title": experiment.title,
        "question": experiment.question,
        "command": request.command,
        **_summary(experiment, found, request.preregistration),
        "results": [asdict(result) for result in found.results],
        "verifiers": verifier_results(request, set(plans)),
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
        "figure": figure_key(experiment.figure),
        "curves": {
            arm: {seed: asdict(curve) for seed, curve in of_arm.items()}
            for arm, of_arm in found.curves.items()
        },
    }


def _draw(experiment: Experiment, found: Collected, out: Path) -> None:
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
                if (cell := mean_cell(found.results, arm.name, column)) is not None
            },
            is_share=column.is_share,
        )
        for column in experiment.evaluations
    ]
    drawn = [panel for panel in bars if panel.name in figure.bars]
    num_seeds = len({result.seed for result in found.results})
    num_drawn = len({seed for some in found.curves.values() for seed in some if some[seed].x})
    several = f"Lines: mean over {num_drawn} seeds; bands: minimum to maximum."
    lined = "Lines: one seed." if num_drawn == 1 else several
    notes = ["One seed."] if num_seeds == 1 else [lined] if curves else []
    notes += [f"At 0: '{figure.start}' before training."] if curves and figure.start else []
    notes += [bars_note(drawn)] if drawn else []
    arms = [arm.name for arm in experiment.arms]
    picture = Picture(experiment.title, " ".join(notes), arms, lines if curves else None, drawn)
    if curves or drawn:
        draw(picture, out / FIGURE)
    if found.results:
        about = {arm.name: arm.description for arm in experiment.arms if arm.description}
        costs = [line.removeprefix("- ").replace("`", "") for line in provenance(found.results)]
        deck = Deck(experiment.question, about, costs, experiment.limits)
        draw_slides(deck, replace(picture, bars=bars), out / SLIDES)


def _from_start(
    experiment: Experiment, found: Collected, arm: str, seed: int, curve: Curve
) -> Curve:
    """The curve with the start arm's evaluation at 0, if there is one."""
    column = experiment.figure.start
    name = next((one.start for one in experiment.arms if one.name == arm), "")
    start = found.find(name, seed) if name and column else None
    if start is None or column not in start.evaluations or not curve.x[0]:
        return curve
    return Curve([0.0, *curve.x], [start.evaluations[column].measured.value, *curve.y])
